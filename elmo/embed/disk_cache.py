"""Vectors of a whole text kept in a file: made once, mapped from then on. The file's name says what they are of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elmo.errors import DataError
from elmo.files import atomic_file, explain_write


def cache_path(folder: Path, identity: Mapping[str, Any], sentences: Iterable[Sequence[str]]) -> Path:
    """The file in `folder` for the vectors of these sentences: a checksum of the text and of `identity`.

    `identity` holds all that the vectors depend on besides the text (model, state policy, layers), as JSON values.
    """
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode())
    for sentence in sentences:
        digest.update(b"\n" + json.dumps(list(sentence)).encode())
    return folder / f"{digest.hexdigest()[:32]}.npy"


def cached_array(path: Path, shape: tuple[int, ...], fill: Callable[[np.ndarray], None]) -> np.ndarray:
    """The float16 array at `path`, mapped; where there is none, `fill` fills it, whole or not at all."""
    if not path.exists():
        with explain_write(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as partial:
            mapped = np.lib.format.open_memmap(partial, mode="w+", dtype=np.float16, shape=shape)
            fill(mapped)
            mapped.flush()
            del mapped
    try:
        found: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path}: damaged ({error}).", "Delete it; it is made anew.") from error
    if found.shape != shape or found.dtype != np.float16:
        raise DataError(
            f"{path} holds {found.dtype} {found.shape}; expected float16 {shape}.", "Delete it; it is made anew."
        )
    return found
