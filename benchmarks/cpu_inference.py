"""How fast is embedding on this CPU? Every path side by side in one process, in turn, on the same sentences.

    python benchmarks/cpu_inference.py --sizes small,original --threads 2
    python benchmarks/cpu_inference.py --text tokens.txt --sentences 192 --dtypes float32 --rounds 7

The measurement is that of `elmo bench --full` (elmo/bench, whose files say what is measured and how), from a checkout
without installing it; `--text` has a tokenised sentence a line. Prints a table, then one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that wait must not spin: other work runs here, too
os.environ.setdefault("GOMP_SPINCOUNT", "0")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from elmo.bench.as_table import comparison_table
from elmo.bench.run import BenchConfig, run_comparison


def main() -> None:
    options = read_options()
    torch.set_num_threads(options.threads)
    config = BenchConfig(
        sizes=options.sizes,
        feeds=options.feeds,
        dtypes=options.dtypes,
        paths=options.paths,
        sentences=options.sentences,
        rounds=options.rounds,
        text=options.text,
        tokenizer="whitespace" if options.text else "default",
        memory=not options.no_memory,
        cpu_time=options.cpu_time,
    )
    done = run_comparison(config, show=True)
    print(comparison_table(done.results, done.peaks))
    print(json.dumps(done.as_dict()))


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words = lambda text: text.split(",")  # noqa: E731
    parser.add_argument("--sizes", type=words, default=["small", "original"], help="of tiny, small, medium, original")
    parser.add_argument("--feeds", type=words, default=["bulk", "single"], help="of bulk, single")
    parser.add_argument("--dtypes", type=words, default=["float32", "bfloat16", "int8"])
    parser.add_argument("--paths", type=words, default=[], help="only these, by name")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--sentences", type=int, help="how many; fewer for large sizes if not given")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu-time", action="store_true", help="of one thread: on a machine that does other things")
    parser.add_argument("--text", type=Path, help="tokenised sentences, one a line")
    parser.add_argument("--no-memory", action="store_true", help="do not measure peak memory (a process for each path)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
