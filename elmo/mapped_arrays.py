"""Opens .npy files as memory-mapped arrays; `elmo.files.create_mapped` creates them."""

from __future__ import annotations

import tokenize
from pathlib import Path

import numpy as np

from elmo.errors import DataError


def open_mapped(path: Path, hint: str) -> np.ndarray:
    """The array in a .npy file, memory-mapped for reading; a file that is missing or damaged is a DataError."""
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    # numpy parses the header as Python source, so that a damaged one raises all kinds of errors
    except (OSError, ValueError, EOFError, SyntaxError, TypeError, OverflowError, tokenize.TokenError) as error:
        raise DataError(f"{path} is damaged or cannot be read ({' '.join(str(error).split())[:200]}).", hint) from error
