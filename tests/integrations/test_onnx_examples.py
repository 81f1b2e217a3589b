"""The examples with exported models: onnxruntime without torch, and onnxruntime-web under node."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from golden import SENTENCES

import elmo
from elmo.integrations.onnx.export import export_onnx
from elmo.text.batch import make_batch

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WEB_FILES = ("package.json", "embed.mjs")


def test_the_ids_of_the_example_are_those_of_the_package():
    char_ids = runpy.run_path(str(EXAMPLES / "onnx_runtime.py"))["char_ids"]
    embedder = elmo.load("tiny-random", device="cpu")
    np.testing.assert_array_equal(char_ids(SENTENCES, 50), make_batch(SENTENCES, embedder.indexer).ids)


def test_onnx_runtime_example_tells_the_senses_apart_without_torch(tmp_path):
    export_onnx("english", tmp_path / "english.onnx", storage="int8")
    code = (
        "import sys, runpy; runpy.run_path(sys.argv.pop(1), run_name='__main__')\n"
        "assert not {'torch', 'elmo'} & set(sys.modules)"
    )
    command = [sys.executable, "-c", code, str(EXAMPLES / "onnx_runtime.py"), str(tmp_path / "english.onnx")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    embedder = elmo.load("english", device="cpu")
    first, *rest = done.stdout.splitlines()
    assert first == f"23 tokens, {embedder.num_layers} layers of {embedder.dim} numbers"
    itself, river, money = (float(re.match(r"\S+", line)[0]) for line in rest)
    assert itself == pytest.approx(1, abs=1e-3)
    assert river > money, done.stdout


@pytest.fixture(scope="module")
def web_folder(tmp_path_factory) -> Path:
    """A copy of the example with its npm package installed; set ELMO_NODE_MODULES to use an installed one."""
    folder = tmp_path_factory.mktemp("onnx_web")
    for name in WEB_FILES:
        shutil.copy(EXAMPLES / "onnx_web" / name, folder)
    installed = os.environ.get("ELMO_NODE_MODULES")
    if shutil.which("node") is None or installed is None and shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    if installed is not None:
        (folder / "node_modules").symlink_to(installed)
        return folder
    done = subprocess.run(["npm", "install", "--no-audit", "--no-fund"], cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"npm cannot install onnxruntime-web: {done.stderr[-200:]}")
    return folder


@pytest.mark.parametrize("storage", ["float32", "int8"])
def test_onnxruntime_web_gives_the_vectors_of_the_embedder(tmp_path, web_folder, storage):
    export_onnx("tiny-random", tmp_path / "m.onnx", storage=storage)
    sentences = [sentence for sentence in SENTENCES if len(sentence) != 1] + [["x"]]
    texts = [" ".join(sentence) for sentence in sentences]
    command = ["node", "embed.mjs", str(tmp_path / "m.onnx"), *texts]
    done = subprocess.run(command, cwd=web_folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["tokens"] for answer in answers] == sentences
    expected = elmo.load("tiny-random", device="cpu").embed(sentences)
    for answer, vectors in zip(answers, expected, strict=True):
        np.testing.assert_allclose(answer["vectors"], vectors, atol=1e-5 if storage == "float32" else 0.02)
