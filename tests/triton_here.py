"""Where Triton's kernels are tested: to be imported before them.

On a machine with CUDA the kernels themselves run (`run.py test -m gpu`). Elsewhere, where Triton is installed, its
interpreter runs the same kernels slowly on the CPU; without Triton the importing file is skipped.
"""

from __future__ import annotations

import os

import pytest
import torch

CUDA = torch.cuda.is_available()
HOPPER = CUDA and torch.version.hip is None and torch.cuda.get_device_capability()[0] == 9
DEVICE = "cuda" if CUDA else "cpu"
if not CUDA:
    os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels are defined
pytest.importorskip("triton")
MARKS = [pytest.mark.gpu] if CUDA else []
