"""What a probe leaves behind: which vectors, which data, which settings, which scores; JSON that can be compared."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from elmo.files import sha256_file
from elmo.probes.vector_source import VectorSource
from elmo.records import make_record


def probe_record(
    *,
    kind: str,
    source: VectorSource,
    files: Mapping[str, Path],
    settings: Mapping[str, Any],
    counts: Mapping[str, int],
    scores: Mapping[str, Any],
) -> dict[str, Any]:
    """One probe's record; scores are rounded to the hundredth of a percent and are otherwise as computed."""
    values = {
        "probe": kind,
        "vectors": source.identity(),
        "data": {name: {"file": path.name, "sha256": sha256_file(path)} for name, path in files.items()},
        "settings": dict(settings),
        "counts": dict(counts),
        "scores": _rounded(scores),
        "made": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
    return make_record("probe", values)


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _rounded(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    return round(float(value), 4) if isinstance(value, (float, np.floating)) else value
