"""Sharded embedding by Ray Data: a pool of actors, each with the model and one CPU core or one GPU.

    embed_files("corpus/*.parquet", "out", model, options, read, runner=OnRay(address="auto"))

A task is the number of a shard. Actors read the rows of their shard themselves and write its Parquet file, so that no
text and no vector passes through Ray's object store: memory use is that of one block per actor, however large the
corpus is. Ray Data restarts actors that died and repeats their tasks; a repeated task writes the same bytes.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from elmo import errors
from elmo.embed.embedder import Embedder
from elmo.embed.shards.options import ReadOptions
from elmo.embed.shards.source_file import SourceFile, index_file
from elmo.embed.shards.worker import Record, ShardJob, ShardWorker, Task
from elmo.errors import ConfigError, ElmoError
from elmo.files import require_extra

MAX_BLOCKS = 10_000  # of tasks; each block costs the scheduler some memory and about a millisecond


@dataclass(frozen=True, kw_only=True)
class OnRay:
    """Runs the tasks in actors of a Ray cluster; without an address and without RAY_ADDRESS, of this machine."""

    address: str | None = None
    device: str = "auto"  # auto: GPUs if the cluster has any, else CPU cores
    num_actors: int | None = None  # None: one per GPU or CPU core of the cluster

    def __post_init__(self) -> None:
        if self.device not in ("auto", "cpu", "cuda"):
            raise ConfigError(f"With --ray, the device is auto, cpu or cuda, not {self.device}.")
        if self.num_actors is not None and self.num_actors < 1:
            raise ConfigError(f"--actors is {self.num_actors}; expected at least 1.")

    @property
    def planning_device(self) -> str:
        return "cpu"  # the driver may be on a machine without a GPU

    def index(self, paths: Sequence[str], options: ReadOptions) -> list[SourceFile]:
        """Indexes each file in a Ray task."""
        with self._connected() as ray:
            index = ray.remote(_index_to_json).options(max_retries=-1)
            results = ray.get([index.remote(path, options) for path in paths])
        return [SourceFile(**_checked(result)) for result in results]

    def run(self, job: ShardJob, tasks: Sequence[Task], embedder: Embedder) -> Iterator[Record]:
        """The records of the shards, in the order in which actors finish them."""
        with self._connected() as ray:
            device, resources, limit = self._resources(ray)
            num_actors = min(self.num_actors or limit, len(tasks))
            items = [{"task": json.dumps(asdict(task))} for task in tasks]
            data = ray.data.from_items(items, override_num_blocks=min(len(items), MAX_BLOCKS)).map_batches(
                ShardActor,
                fn_constructor_args=(job, device),
                batch_size=1,
                compute=ray.data.ActorPoolStrategy(min_size=1, max_size=num_actors, initial_size=num_actors),
                **resources,
            )
            for row in data.iter_rows():
                yield _checked(json.loads(row["record"]))

    def _resources(self, ray: Any) -> tuple[str, dict[str, int], int]:
        """The device and the resources of an actor, and how many actors the cluster has room for."""
        total = ray.cluster_resources()
        num_gpus, num_cpus = int(total.get("GPU", 0)), int(total.get("CPU", 0))
        if self.device == "cuda" or self.device == "auto" and num_gpus:
            return "cuda", {"num_gpus": 1}, max(num_gpus, 1)
        return "cpu", {"num_cpus": 1}, max(num_cpus, 1)  # Ray sets OMP_NUM_THREADS to num_cpus

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """Ray, connected to the cluster; an existing connection is used and kept."""
        ray = require_extra("ray", "ray")
        require_extra("ray.data", "ray")
        if ray.is_initialized():
            yield ray
            return
        logging.getLogger("ray.data").setLevel(logging.WARNING)
        address = self.address or (None if os.environ.get("RAY_ADDRESS") else "local")
        options = {"include_dashboard": False} if address == "local" else {}
        try:
            ray.init(address, logging_level=logging.ERROR, log_to_driver=False, **options)
        except (ConnectionError, ValueError, RuntimeError) as error:
            reason = str(error).splitlines()[0][:200]
            raise ElmoError(f"No Ray cluster at {address} ({reason}).", "Start one: ray start --head") from error
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        try:
            yield ray
        except ray.exceptions.RayError as error:
            lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
            raise ElmoError(
                f"Ray failed ({lines[-1].strip()[:300]}).", "Finished shards are kept: repeat the command to continue."
            ) from error
        finally:
            ray.shutdown()


class ShardActor:
    """The worker in an actor; an error for users is passed on as a value, so that it arrives as it was raised."""

    def __init__(self, job: ShardJob, device: str) -> None:
        self._worker: ShardWorker | None = None
        self._error: str | None = None
        try:
            self._worker = ShardWorker(job, device)
        except ElmoError as error:
            self._error = _error_json(error)

    def __call__(self, batch: dict[str, Any]) -> Iterator[dict[str, list[str]]]:
        """The records of the shards of one task, as JSON."""
        for task in batch["task"]:
            if self._worker is None:
                yield {"record": [str(self._error)]}
                continue
            try:
                for record in self._worker.run(Task(**json.loads(task))):
                    yield {"record": [json.dumps(record)]}
            except ElmoError as error:
                yield {"record": [_error_json(error)]}


def _index_to_json(path: str, options: ReadOptions) -> dict[str, Any]:
    try:
        return index_file(path, options).as_json()
    except ElmoError as error:
        return dict(json.loads(_error_json(error)))


def _error_json(error: ElmoError) -> str:
    return json.dumps({"error": type(error).__name__, "message": error.message, "hint": error.hint})


def _checked(result: dict[str, Any]) -> dict[str, Any]:
    """The result of a worker; an error is raised as what it was."""
    if "error" not in result:
        return result
    kind = getattr(errors, result["error"], ElmoError)
    if kind is errors.MissingExtra:  # it has another signature
        kind = ConfigError
    raise kind(result["message"], result["hint"])
