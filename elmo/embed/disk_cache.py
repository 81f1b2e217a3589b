"""Cache of arrays on disk: computed once, then memory-mapped. The caller's file name identifies the content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elmo.errors import DataError
from elmo.files import atomic_file, create_mapped, explain_write
from elmo.mapped_arrays import open_mapped


def cache_path(folder: Path, identity: Mapping[str, Any], sentences: Iterable[Sequence[str]]) -> Path:
    """The file in `folder` for the vectors of these sentences: a checksum of the text and of `identity`.

    `identity` holds all that the vectors depend on besides the text (model, state policy, layers), as JSON values.
    """
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode())
    for sentence in sentences:
        digest.update(b"\n" + json.dumps(list(sentence)).encode())
    return folder / f"{digest.hexdigest()[:32]}.npy"


def cached_array(path: Path, shape: tuple[int, ...], fill: Callable[[np.ndarray], None]) -> np.ndarray:
    """The float16 array at `path`, memory-mapped. If there is no file, `fill` computes it; a failure leaves no file."""
    if not path.exists():
        with explain_write(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as partial:
            mapped = create_mapped(partial, np.float16, shape)
            fill(mapped)
            del mapped  # `atomic_file` syncs it
    hint = "Delete it; the next run computes it again."
    array = open_mapped(path, hint)
    if array.shape != shape or array.dtype != np.float16:
        raise DataError(
            f"{path} holds {array.dtype} {array.shape}; expected float16 {shape}.",
            hint,
        )
    return array
