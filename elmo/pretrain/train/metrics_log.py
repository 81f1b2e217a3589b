"""metrics.jsonl: one line a step, a validation and a rollback, each once, however often the run was killed."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from types import TracebackType
from typing import Any

from elmo.files import atomic_file, explain_write, require_extra


class RunLog:
    """Appends records; on opening, drops what a killed process wrote after the checkpoint the run continues from."""

    def __init__(self, path: Path, step: int, *, tensorboard: bool = False) -> None:
        self.path, self._tensorboard = path, tensorboard
        self._open([line for line in read_log(path) if line["step"] <= step], step)

    def __enter__(self) -> RunLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def write(self, step: int, **values: Any) -> None:
        """One record of a step; numbers that are not finite become null, for JSON has none."""
        record = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}
        with explain_write(self.path):
            self._file.write(json.dumps({"step": step, **record}) + "\n")
        if self._board is not None:
            for name, value in _flat(values):
                self._board.add_scalar(name, value, step)

    def rewind(self, step: int, num_rollbacks: int) -> None:
        """Drops the records after `step`, and of rollbacks all but the first `num_rollbacks`."""
        self._close()
        lines = [line for line in read_log(self.path) if line["step"] <= step]
        self._open([line for line in lines if line.get("rollback", {}).get("number", 0) <= num_rollbacks], step)

    def flush(self) -> None:
        """Everything written so far survives a crash."""
        with explain_write(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())

    def _open(self, lines: list[dict[str, Any]], step: int) -> None:
        if self.path.exists():
            with atomic_file(self.path) as partial:
                partial.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        self._file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115 (closed by __exit__)
        self._board: Any = None
        if self._tensorboard:
            require_extra("tensorboard", "track")
            writer = require_extra("torch.utils.tensorboard", "track").SummaryWriter
            self._board = writer(str(self.path.parent / "tensorboard"), purge_step=step + 1)

    def _close(self) -> None:
        with explain_write(self.path):
            self._file.close()
        if self._board is not None:
            self._board.close()


def read_log(path: Path) -> list[dict[str, Any]]:
    """All whole records of a run."""
    return _whole_lines(path) if path.exists() else []


def _whole_lines(path: Path) -> list[dict[str, Any]]:
    records = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            records.append(json.loads(line))
        except ValueError:
            continue  # the line a killed process was writing
    return [record for record in records if isinstance(record, dict) and isinstance(record.get("step"), int)]


def _flat(values: dict[str, Any], prefix: str = "") -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for key, value in values.items():
        if isinstance(value, dict):
            found += _flat(value, f"{prefix}{key}/")
        elif isinstance(value, int | float):
            found.append((prefix + key, float(value)))
    return found
