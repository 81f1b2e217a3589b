"""`elmo export` without the libraries of an extra: one sentence with the command that installs them."""

from __future__ import annotations

import pytest
from test_main import elmo


@pytest.mark.parametrize("missing", ["onnx", "onnxruntime"])
def test_a_missing_library_of_onnx_is_named_with_the_pip_command(tmp_path, missing):
    before = f"import sys, types\nsys.modules.update(onnx=types.ModuleType('onnx'))\nsys.modules[{missing!r}] = None"
    done = elmo("export", "onnx", "tiny-random", str(tmp_path / "m.onnx"), before=before)
    assert done.returncode == 2
    assert done.stderr == (
        f"elmo: {missing} is needed for this and is not installed.\n  pip install onnx onnxruntime\n"
    )
    assert list(tmp_path.iterdir()) == []
