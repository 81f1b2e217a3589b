"""Set-up for tests of Triton kernels; import it before the kernels.

On a machine with CUDA the compiled kernels run (`run.py test -m gpu`). Elsewhere, if Triton is installed, its
interpreter runs the same kernels slowly on the CPU. Without Triton the importing file is skipped.
"""

from __future__ import annotations

import os

import pytest
import torch

CUDA = torch.cuda.is_available()
HOPPER = CUDA and torch.version.hip is None and torch.cuda.get_device_capability()[0] == 9
DEVICE = "cuda" if CUDA else "cpu"
if not CUDA:
    os.environ["TRITON_INTERPRET"] = "1"  # Triton reads it when the kernels are defined
pytest.importorskip("triton")
MARKS = [pytest.mark.gpu] if CUDA else []
