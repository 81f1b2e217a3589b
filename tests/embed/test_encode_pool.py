"""Encoding in several processes gives the vectors of one process, and its mistakes are clear errors."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from golden import SENTENCES, golden_embedder

import elmo
from elmo.embed.embedder import Embedder
from elmo.embed.encode_pool import EncodePool
from elmo.errors import ConfigError

TEXTS = ["The cat sat .", "", *SENTENCES, "It rained on Monday, she said.", "One ."]


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    # a function without a name cannot be pickled: the tokenizer stays in this process
    return golden_embedder("allennlp", state="warm", tokenizer=lambda text: text.split())


@pytest.fixture(scope="module")
def pool(embedder: Embedder) -> Iterator[EncodePool]:
    with embedder.start_multi_process_pool(["cpu", "cpu"]) as pool:
        yield pool


@pytest.mark.parametrize(
    "options",
    [{}, {"layers": "concat", "normalize_embeddings": True}, {"layers": "all", "pooling": "max", "chunk_size": 1}],
)
def test_processes_give_the_vectors_of_one_process(embedder: Embedder, pool: EncodePool, options: dict) -> None:
    expected = embedder.encode(TEXTS, **{k: v for k, v in options.items() if k != "chunk_size"})
    result = embedder.encode(TEXTS, pool=pool, **options)
    assert result.dtype == expected.dtype
    np.testing.assert_allclose(result, expected, atol=1e-6)


def test_a_learned_mix_and_documents_are_encoded_by_processes(embedder: Embedder, pool: EncodePool) -> None:
    mix = elmo.ScalarMix(3)
    with torch.no_grad():
        mix.weights.copy_(torch.tensor([0.1, 0.7, -0.4]))
    documents = ["The cat sat. It rained.", "One."]
    expected = embedder.encode(documents, layers=mix, split=True, convert_to_tensor=True)
    result = embedder.encode(documents, layers=mix, split=True, convert_to_tensor=True, pool=pool)
    torch.testing.assert_close(result, expected)
    assert embedder.encode([], pool=pool).shape == (0, 32)
    assert embedder.encode("The cat", pool=pool).shape == (32,)


def test_a_list_of_devices_is_a_pool_of_processes_for_one_call(embedder: Embedder) -> None:
    np.testing.assert_allclose(embedder.encode(TEXTS, device=["cpu"]), embedder.encode(TEXTS), atol=1e-6)


def test_an_error_in_a_process_reaches_the_caller_and_the_pool_lives_on(embedder: Embedder, pool: EncodePool) -> None:
    with pytest.raises(ConfigError, match="pooling is 'median'"):
        embedder.encode(TEXTS, pool=pool, pooling="median")
    with pytest.raises(TypeError, match=r"texts\[7\]"):
        embedder.encode([*TEXTS[:7], 3], pool=pool)
    assert embedder.encode(TEXTS, pool=pool).shape == (8, 32)


def test_pools_that_cannot_be_right_are_refused(embedder: Embedder, pool: EncodePool) -> None:
    with pytest.raises(ConfigError, match="another embedder"):
        golden_embedder("allennlp").encode(TEXTS, pool=pool)
    with pytest.raises(ConfigError, match="both a device and a pool"):
        embedder.encode(TEXTS, pool=pool, device="cpu")
    with pytest.raises(ConfigError, match="chunk_size is 0"):
        embedder.encode(TEXTS, pool=pool, chunk_size=0)
    with pytest.raises(ConfigError, match="chunk_size is for a pool"):
        embedder.encode(TEXTS, chunk_size=5)
    with pytest.raises(ConfigError, match="empty"):
        embedder.start_multi_process_pool([])
    with pytest.raises(ConfigError, match="device is 'nowhere'"):
        embedder.start_multi_process_pool(["nowhere"])
    with pytest.raises(ConfigError, match="'carry'"):
        golden_embedder("allennlp", state="carry").start_multi_process_pool(["cpu"])


def test_a_closed_pool_says_that_it_is_closed(embedder: Embedder) -> None:
    pool = embedder.start_multi_process_pool(["cpu"])
    assert repr(pool) == "EncodePool('', devices=['cpu'])"
    embedder.stop_multi_process_pool(pool)
    assert "closed" in repr(pool)
    with pytest.raises(ConfigError, match="pool is closed"):
        embedder.encode(TEXTS, pool=pool)


def test_a_device_by_name_moves_the_embedder_and_keeps_its_cache_if_it_is_there() -> None:
    embedder = golden_embedder("allennlp")
    expected = embedder.encode(TEXTS)
    words = embedder.words
    np.testing.assert_array_equal(embedder.encode(TEXTS, device="cpu"), expected)
    np.testing.assert_array_equal(embedder.encode(TEXTS, device=torch.device("cpu")), expected)
    assert embedder.words is words
    with pytest.raises(ConfigError, match="device is 'nowhere'"):
        embedder.encode(TEXTS, device="nowhere")


SCRIPT_WITH_A_CLASS = """
import elmo
from elmo.embed.embedder import Embedder
from elmo.text.indexer import ByteIndexer

class Lowercase(ByteIndexer):
    def row(self, token):
        return super().row(token.lower())

    def rows(self, tokens):
        return super().rows([token.lower() for token in tokens])

if __name__ == "__main__":
    embedder = Embedder(elmo.load("tiny-random", device="cpu").model, Lowercase(50), device="cpu")
    with embedder.start_multi_process_pool(["cpu"]) as pool:
        one, two = embedder.encode(["One TWO", "one two"], pool=pool)
        print(abs(one - two).max())
"""


SCRIPT_WITHOUT_A_GUARD = """
import elmo

print("started")
print(elmo.load("tiny-random", device="cpu").encode(["One .", "Two ."], device=["cpu", "cpu"]).shape)
"""


@pytest.mark.parametrize(
    ("script", "printed"),
    [
        pytest.param(SCRIPT_WITH_A_CLASS, ["0.0"], id="workers have the classes of the script"),
        pytest.param(SCRIPT_WITHOUT_A_GUARD, ["started", "(2, 128)"], id="workers do not run a script without classes"),
    ],
)
def test_scripts_may_use_a_pool(tmp_path: Path, script: str, printed: list[str]) -> None:
    (tmp_path / "script.py").write_text(script, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(Path(elmo.__file__).parents[1])}
    command = [sys.executable, tmp_path / "script.py"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout.splitlines(), done.returncode) == (printed, 0), done.stderr
