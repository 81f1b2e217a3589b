"""How much faster are several Ray actors than one, and is the memory of a long run flat?

    python benchmarks/ray_embed.py corpus.txt --model english --actors 1 2 --rounds 3
    python benchmarks/ray_embed.py corpus.txt --model english --actors 2 --rounds 1 --memory

Runs `embed_files` on a Ray cluster of this machine, one core per actor; the numbers of actors take turns. The time of a
run is that from its first finished shard to its last one, so that the start of Ray and of the models is not counted;
its words are those of all shards but the first ones. `--memory` prints the memory of all actors (proportional set size)
after every tenth of the shards. Ends with one JSON line. Run it on an idle machine: the load is part of the result.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parent.parent)  # of the actors

import psutil

from elmo.embed.dump.options import DumpOptions
from elmo.embed.shards.job import embed_files
from elmo.embed.shards.options import ModelSettings, ReadOptions
from elmo.integrations.ray import OnRay, connect


class Meter:
    """A runner that notes when each shard is finished."""

    def __init__(self, runner: OnRay, with_memory: bool) -> None:
        self.runner, self.planning_device = runner, runner.planning_device
        self.with_memory = with_memory
        self.finished: list[tuple[float, int]] = []  # seconds, words
        self.memory: list[tuple[int, float]] = []  # words so far, MB of all actors

    def index(self, paths: Any, options: ReadOptions) -> Any:
        return self.runner.index(paths, options)

    def run(self, job: Any, tasks: Any, embedder: Any) -> Iterator[Any]:
        num_words = 0
        for record in self.runner.run(job, tasks, embedder):
            num_words += record["tokens"]
            self.finished.append((time.monotonic(), record["tokens"]))
            if self.with_memory and len(self.finished) % max(1, len(tasks) // 10) == 0:
                self.memory.append((num_words, actor_megabytes()))
                print(f"{num_words:>14,} words  {self.memory[-1][1]:8.1f} MB", flush=True)
            yield record

    def words_per_second(self, num_actors: int) -> float:
        """The rate after each actor has finished one shard."""
        warm = self.finished[num_actors - 1 :]
        return sum(words for _, words in warm[1:]) / (warm[-1][0] - warm[0][0])


def actor_megabytes() -> float:
    """The memory of the actors of this run; other programs on this machine may use Ray as well."""
    processes = psutil.Process().children(recursive=True)
    return sum(p.memory_full_info().pss for p in processes if "MapWorker" in " ".join(p.cmdline())) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description="Throughput and memory of embedding with Ray.")
    parser.add_argument("text")
    parser.add_argument("--model", default="default")
    parser.add_argument("--actors", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--shard-lines", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", action="store_true")
    args = parser.parse_args()
    options, read = DumpOptions(pool="mean", layers="average"), ReadOptions(shard_rows=args.shard_lines)
    model = ModelSettings(model=args.model)
    rates: dict[int, list[float]] = {count: [] for count in args.actors}
    memory: list[tuple[int, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(args.rounds):
            for count in args.actors:
                with connect("local", device="cpu", num_actors=count) as runner:
                    meter = Meter(runner, args.memory)
                    embed_files(args.text, Path(folder, f"{number}-{count}"), model, options, read, runner=meter)
                rates[count].append(meter.words_per_second(count))
                memory = meter.memory or memory
    print(f"{'actors':>6} {'words/s':>10} {'lowest':>10} {'highest':>10} {'times':>6}")
    first = statistics.median(rates[args.actors[0]])
    for count, values in rates.items():
        median = statistics.median(values)
        print(f"{count:>6} {median:>10,.0f} {min(values):>10,.0f} {max(values):>10,.0f} {median / first:>6.2f}")
    facts = {"model": args.model, "load": os.getloadavg(), "cores": os.cpu_count(), "rates": rates, "memory": memory}
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
