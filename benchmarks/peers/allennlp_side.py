"""AllenNLP's own biLM in turns with ours, in one process, on the same weights and sentences.

    pip download --no-deps allennlp==2.10.1 && python -m zipfile -e allennlp-2.10.1-*.whl allennlp-wheel
    python benchmarks/peers/allennlp_side.py allennlp-wheel --sizes small,original --threads 2
    python benchmarks/peers/allennlp_side.py allennlp-wheel --memory small     # peak MB of AllenNLP alone

Its wheel names versions of libraries that no longer install beside a current PyTorch. What its ELMo computes needs
none of them: they are imported at the top of other modules. Those that are missing here are stood in for by empty
modules, whose names are printed; all that runs of AllenNLP is its own code from its own wheel.

The table is that of `elmo bench` with the paths `allennlp` (batches of 64 in file order) and `allennlp sorted` (fed
sentences of like length), and one sentence at a time. "difference" of these two lines is the largest between
AllenNLP's numbers and our plain path's. Its memory of earlier batches is reset before each, or they would not compare.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import types
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that wait must not spin: other work runs here, too
os.environ.setdefault("GOMP_SPINCOUNT", "0")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch  # before anything is stood in for: it looks for some of these itself

from elmo.bench.compare import how_many
from elmo.bench.run import BenchConfig, run_comparison
from elmo.bench.sample import sentences_for
from elmo.bench.table import comparison_table
from elmo.bench.variants import random_subject, variants_of

# what AllenNLP 2.10.1 imports besides PyTorch, numpy and h5py on its way to modules/elmo.py
NEEDS = (
    "_jsonnet", "base58", "cached_path", "dill", "fairscale", "filelock", "huggingface_hub", "lmdb", "more_itertools",
    "nltk", "requests", "sacremoses", "sentencepiece", "spacy", "tensorboardX", "termcolor", "torchvision", "tqdm",
    "transformers", "typer", "wandb",
)  # fmt: skip


def main() -> None:
    options = read_options()
    stood_in = stand_in_for_what_is_missing()
    sys.path.insert(0, str(options.wheel))
    torch.set_num_threads(options.threads)
    if options.memory:
        print(peak_of_allennlp(options.memory, options))
        return
    if "allennlp" not in variants_of(random_subject("tiny"), ["float32"]):
        sys.exit(f"allennlp cannot be imported from {options.wheel}; the line above says why.")
    config = BenchConfig(
        sizes=options.sizes, feeds=options.feeds, paths=options.paths, sentences=options.sentences,
        rounds=options.rounds, text=options.text, tokenizer="whitespace" if options.text else "default",
        cpu_time=options.cpu_time,
    )  # fmt: skip
    done = run_comparison(config, show=True)
    print(f"allennlp {sys.modules['allennlp'].__version__}; stood in for: {', '.join(stood_in)}")
    print(comparison_table(done.results, done.peaks))
    print(json.dumps(done.as_dict()))


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words = lambda text: text.split(",")  # noqa: E731
    parser.add_argument("wheel", type=Path, help="the folder AllenNLP's wheel was unpacked into")
    parser.add_argument("--sizes", type=words, default=["small", "original"])
    parser.add_argument("--feeds", type=words, default=["bulk", "single"])
    parser.add_argument("--paths", type=words, default=[], help="only these, by name")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--sentences", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cpu-time", action="store_true", help="of one thread: on a machine that does other things")
    parser.add_argument("--text", type=Path, help="tokenised sentences, one a line")
    parser.add_argument("--memory", metavar="SIZE", help="only: peak MB of AllenNLP alone, bulk")
    options = parser.parse_args()
    if not (options.wheel / "allennlp" / "modules" / "elmo.py").exists():
        parser.error(f"{options.wheel} has no allennlp/modules/elmo.py: unpack the wheel there (see --help)")
    return options


def peak_of_allennlp(size: str, options: argparse.Namespace) -> int:
    """MB. Its weights are read from a file that ours are written to, so ours are let go before it starts."""
    count = options.sentences or how_many("bulk", size)
    sentences = sentences_for(count, options.text, tokenizer_name="whitespace" if options.text else "default")
    variants_of(random_subject(size), ["float32"])["allennlp"].embed(sentences)
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) // 1024


def stand_in_for_what_is_missing() -> list[str]:
    """Empty modules for those of NEEDS that are not installed; their names."""
    missing = [name for name in NEEDS if importlib.util.find_spec(name) is None]
    sys.meta_path.append(Missing(missing))
    if "cached_path" in missing:  # the one that is called: from the name of a file here to that name
        sys.modules["cached_path"] = module = Empty("cached_path")
        module.__path__ = []
        module.cached_path = lambda path, *_, **__: str(path)  # type: ignore[attr-defined]
    return missing


class Anything(type):
    """A class of which every attribute is a class again: a base, an annotation, a default."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing


class Nothing(metaclass=Anything):
    """Stands for whatever is imported from a missing module."""


class Empty(types.ModuleType):
    """A module that has every name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing


class Missing(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds empty modules where nothing else finds anything, for the given names and what lies below them."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name.split(".")[0] not in self.names:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return Empty(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


if __name__ == "__main__":
    main()
