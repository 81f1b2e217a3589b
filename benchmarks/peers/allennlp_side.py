"""AllenNLP's own biLM compared with ours in one process, on the same weights and sentences.

    pip download --no-deps allennlp==2.10.1 && python -m zipfile -e allennlp-2.10.1-*.whl allennlp-wheel
    python benchmarks/peers/allennlp_side.py allennlp-wheel --sizes small,original --threads 2
    python benchmarks/peers/allennlp_side.py allennlp-wheel --memory small     # peak MB of AllenNLP alone

Its wheel requires versions of libraries that no longer install next to a current PyTorch. Its ELMo needs none of them;
they are imported at the top of other modules. Libraries that are missing are replaced by empty modules, whose names are
printed. The AllenNLP code that runs is that of its own wheel, unchanged.

The table is that of `elmo bench` with the variants `allennlp` (batches of 64 in file order) and `allennlp sorted` (fed
sentences sorted by length); in feed "single" there is one sentence per call. Their "difference" is the largest
difference between AllenNLP's vectors and those of our plain variant. The state that AllenNLP carries from batch to
batch is reset before each batch, because the vectors could not be compared otherwise.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import shlex
import sys
import types
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # waiting threads must not spin, because other programs may run
os.environ.setdefault("GOMP_SPINCOUNT", "0")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch  # before modules are replaced, because torch itself looks for some of them

from elmo.bench.compare import default_sentence_count
from elmo.bench.run import BenchConfig, run_comparison
from elmo.bench.sample import sample_sentences
from elmo.bench.table import comparison_table
from elmo.bench.variants import make_variants, random_subject

# what AllenNLP 2.10.1 imports on the way to modules/elmo.py, besides PyTorch, numpy and h5py
DEPENDENCIES = (
    "_jsonnet", "base58", "cached_path", "dill", "fairscale", "filelock", "huggingface_hub", "lmdb", "more_itertools",
    "nltk", "requests", "sacremoses", "sentencepiece", "spacy", "tensorboardX", "termcolor", "torchvision", "tqdm",
    "transformers", "typer", "wandb",
)  # fmt: skip


def main() -> None:
    options = read_options()
    replaced = replace_missing_modules()
    sys.path.insert(0, str(options.wheel))
    torch.set_num_threads(options.threads)
    if options.memory:
        print(allennlp_peak_memory(options.memory, options))
        return
    if "allennlp" not in make_variants(random_subject("tiny"), ["float32"]):
        sys.exit(f"allennlp cannot be imported from {options.wheel}; the line above says why.")
    config = BenchConfig(
        sizes=options.sizes, feeds=options.feeds, paths=options.paths, sentences=options.sentences,
        rounds=options.rounds, text=options.text, tokenizer="whitespace" if options.text else "default",
        cpu_time=options.cpu_time,
    )  # fmt: skip
    comparison = run_comparison(config, show=True)
    print(f"allennlp {sys.modules['allennlp'].__version__}; replaced by empty modules: {', '.join(replaced)}")
    print(comparison_table(comparison.results, comparison.peaks))
    print(json.dumps(comparison.as_record(shlex.join(["python", *sys.argv]))))


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = lambda text: text.split(",")  # noqa: E731
    parser.add_argument("wheel", type=Path, help="folder that AllenNLP's wheel was unpacked into")
    parser.add_argument("--sizes", type=names, default=["small", "original"], help="presets, separated by commas")
    parser.add_argument("--feeds", type=names, default=["bulk", "single"], help="bulk, single or both")
    parser.add_argument("--paths", type=names, default=[], help="only these variants, by name, separated by commas")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="CPU threads")
    parser.add_argument("--sentences", type=int, help="number of sentences; default: depends on the size")
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds after the warm-up")
    parser.add_argument("--cpu-time", action="store_true", help="CPU time of one thread, for a machine with other load")
    parser.add_argument("--text", type=Path, help="file of tokenised sentences, one per line")
    parser.add_argument("--memory", metavar="SIZE", help="print only the peak MB of AllenNLP alone, feed bulk")
    options = parser.parse_args()
    if not (options.wheel / "allennlp" / "modules" / "elmo.py").exists():
        parser.error(f"{options.wheel} has no allennlp/modules/elmo.py: unpack the wheel there (see --help)")
    return options


def allennlp_peak_memory(size: str, options: argparse.Namespace) -> int:
    """Peak MB. AllenNLP reads its weights from a file that our model writes; our model is freed before it starts."""
    count = options.sentences or default_sentence_count("bulk", size)
    sentences = sample_sentences(count, options.text, tokenizer_name="whitespace" if options.text else "default")
    make_variants(random_subject(size), ["float32"])["allennlp"].embed(sentences)
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) // 1024


def replace_missing_modules() -> list[str]:
    """Replaces those of DEPENDENCIES that are not installed by empty modules; their names."""
    missing = [name for name in DEPENDENCIES if importlib.util.find_spec(name) is None]
    sys.meta_path.append(EmptyModuleFinder(missing))
    if "cached_path" in missing:  # the only one that is called: for a local file it returns the same path
        sys.modules["cached_path"] = module = EmptyModule("cached_path")
        module.__path__ = []
        module.cached_path = lambda path, *_, **__: str(path)  # type: ignore[attr-defined]
    return missing


class AnyAttribute(type):
    """A metaclass whose classes have every attribute, each a class: usable as base class, annotation and default."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Placeholder


class Placeholder(metaclass=AnyAttribute):
    """Replaces whatever is imported from a missing module."""


class EmptyModule(types.ModuleType):
    """A module that has a placeholder for every name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Placeholder


class EmptyModuleFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds empty modules for the given names and their submodules, where no other finder finds a module."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name.split(".")[0] not in self.names:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return EmptyModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


if __name__ == "__main__":
    main()
