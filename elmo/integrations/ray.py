"""Sharded embedding by Ray Data: a pool of actors, each with the model and one CPU core or one GPU.

    with connect("auto") as runner:
        embed_files("corpus/*.parquet", "out", model, options, read, runner=runner)

A task is the number of a shard. Actors read the rows of their shard themselves and write its Parquet file, so that no
text and no vector passes through Ray's object store: memory use is that of one block per actor, however large the
corpus is. Ray Data restarts actors that died and repeats their tasks; a repeated task writes the same bytes.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
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

CONNECT_SECONDS = 30.0
_START = "Start one with `ray start`, or check the address."
MAX_BLOCKS = 10_000  # of tasks; each block costs the scheduler some memory and about a millisecond


@contextmanager
def connect(
    address: str | None = None,  # None: RAY_ADDRESS, or a cluster of this machine that ends with the connection
    *,
    device: str = "auto",  # auto: GPUs if the cluster has any, else CPU cores
    num_actors: int | None = None,  # None: one per GPU or CPU core of the cluster
) -> Iterator[OnRay]:
    """A runner for `embed_files`, connected to a Ray cluster. A connection that exists already is used and kept."""
    if device not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"With --ray, the device is auto, cpu or cuda, not {device}.")
    if num_actors is not None and num_actors < 1:
        raise ConfigError(f"--actors is {num_actors}; expected at least 1.")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # Ray's own messages of lower levels are in its log files
    ray = require_extra("ray", "ray")
    require_extra("ray.data", "ray")
    is_connected = ray.is_initialized()
    if not is_connected:
        _init(ray, address or (None if os.environ.get("RAY_ADDRESS") else "local"))
    try:
        yield OnRay(ray, device, num_actors)
    except ray.exceptions.RayError as error:
        lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        raise ElmoError(
            f"Ray failed ({lines[-1].strip()[:300]}).", "Finished shards are kept: repeat the command to continue."
        ) from error
    finally:
        if not is_connected:
            ray.shutdown()


def _init(ray: Any, address: str | None) -> None:
    if match := re.fullmatch(r"(?:ray://)?([^/:]+):(\d{1,5})", address or ""):
        try:  # Ray itself tries for minutes
            socket.create_connection((match[1], int(match[2])), timeout=CONNECT_SECONDS).close()
        except (OSError, OverflowError) as error:
            raise ElmoError(f"No Ray cluster at {address} ({error}).", _START) from error
    options = {"include_dashboard": False} if address == "local" else {}
    try:
        ray.init(address, logging_level=logging.ERROR, log_to_driver=False, **options)
    except Exception as error:  # Ray raises Exception itself when a node takes longer than 30 seconds to start
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        if address == "local":
            raise ElmoError(f"Ray did not start on this machine ({reason}).", "Is the machine overloaded?") from error
        raise ElmoError(f"No Ray cluster at {address} ({reason}).", _START) from error


@dataclass(frozen=True)
class OnRay:
    """Runs the tasks of a sharded embedding in actors of a Ray cluster."""

    ray: Any  # the module, connected
    device: str
    num_actors: int | None

    @property
    def planning_device(self) -> str:
        return "cpu"  # the driver may be on a machine without a GPU

    def index(self, paths: Sequence[str], options: ReadOptions) -> list[SourceFile]:
        """Indexes each file in a Ray task."""
        index = self.ray.remote(_index_to_json).options(max_retries=-1)
        results = self.ray.get([index.remote(path, options) for path in paths])
        return [SourceFile(**_checked(result)) for result in results]

    def run(self, job: ShardJob, tasks: Sequence[Task], embedder: Embedder) -> Iterator[Record]:
        """The records of the shards, in the order in which actors finish them."""
        data = self.ray.data
        data.DataContext.get_current().enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        device, resources, limit = self._resources()
        num_actors = min(self.num_actors or limit, len(tasks))
        items = [{"task": json.dumps(asdict(task))} for task in tasks]
        records = data.from_items(items, override_num_blocks=min(len(items), MAX_BLOCKS)).map_batches(
            ShardActor,
            fn_constructor_args=(job, device),
            batch_size=1,
            compute=data.ActorPoolStrategy(min_size=1, max_size=num_actors, initial_size=num_actors),
            **resources,
        )
        for row in records.iter_rows():
            yield _checked(json.loads(row["record"]))

    def _resources(self) -> tuple[str, dict[str, int], int]:
        """The device and the resources of an actor, and how many actors the cluster has room for."""
        total = self.ray.cluster_resources()
        num_gpus, num_cpus = int(total.get("GPU", 0)), int(total.get("CPU", 0))
        if self.device == "cuda" and not num_gpus:
            raise ConfigError("The Ray cluster has no GPU.", "Use --device cpu, or add a machine that has one.")
        if num_gpus and self.device != "cpu":
            return "cuda", {"num_gpus": 1}, num_gpus
        return "cpu", {"num_cpus": 1}, max(num_cpus, 1)  # Ray sets OMP_NUM_THREADS to num_cpus


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
