"""The file metrics.jsonl: one record per step, per validation and per rollback, without duplicates after a crash."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from types import TracebackType
from typing import Any

from elmo.files import atomic_file, explain_write, require_extra


class MetricsLog:
    """Appends records to metrics.jsonl, and to TensorBoard on request.

    On opening, records after `step` are removed: a killed process wrote them after the checkpoint that is resumed.
    """

    def __init__(self, path: Path, step: int, *, tensorboard: bool = False) -> None:
        self.path, self._tensorboard = path, tensorboard
        self._open([record for record in read_metrics(path) if record["step"] <= step], step)

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def write(self, step: int, **values: Any) -> None:
        """Appends one record of a step; non-finite numbers become null, because JSON has no NaN and no infinity."""
        record = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}
        with explain_write(self.path):
            self._file.write(json.dumps({"step": step, **record}) + "\n")
        if self._writer is not None:
            for name, value in _flatten(values):
                self._writer.add_scalar(name, value, step)

    def rewind(self, step: int, num_rollbacks: int) -> None:
        """Removes the records after `step`, and all rollback records except the first `num_rollbacks`."""
        self._close()
        records = [record for record in read_metrics(self.path) if record["step"] <= step]
        self._open([r for r in records if r.get("rollback", {}).get("number", 0) <= num_rollbacks], step)

    def flush(self) -> None:
        """Writes all records to the disk, so that they survive a crash."""
        with explain_write(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())

    def _open(self, records: list[dict[str, Any]], step: int) -> None:
        """Replaces the content of the file by `records` and opens it for appending."""
        if self.path.exists():
            with atomic_file(self.path) as partial:
                partial.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
        self._file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115 (closed by __exit__)
        self._writer: Any = None
        if self._tensorboard:
            require_extra("tensorboard", "track")
            summary_writer = require_extra("torch.utils.tensorboard", "track").SummaryWriter
            self._writer = summary_writer(str(self.path.parent / "tensorboard"), purge_step=step + 1)

    def _close(self) -> None:
        with explain_write(self.path):
            self._file.close()
        if self._writer is not None:
            self._writer.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All complete records of a metrics.jsonl; none if there is no file."""
    if not path.exists():
        return []
    records = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            records.append(json.loads(line))
        except ValueError:
            continue  # an incomplete line, because the process was killed while it wrote
    return [record for record in records if isinstance(record, dict) and isinstance(record.get("step"), int)]


def _flatten(values: dict[str, Any], prefix: str = "") -> list[tuple[str, float]]:
    """The numbers of nested dicts with names such as validation/reset/mean."""
    scalars: list[tuple[str, float]] = []
    for key, value in values.items():
        if isinstance(value, dict):
            scalars += _flatten(value, f"{prefix}{key}/")
        elif isinstance(value, int | float):
            scalars.append((prefix + key, float(value)))
    return scalars
