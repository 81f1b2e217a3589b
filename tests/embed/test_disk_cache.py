"""Vectors on disk: files are named by what the vectors depend on, so that nothing is read for another text."""

from __future__ import annotations

from pathlib import Path

import pytest

from elmo.embed.disk_cache import cache_path

IDENTITY = {"sha256": "ab", "state": "reset", "layers": [[0.0, 1.0]]}
TEXT = [["The", "bank", "."], ["a\tb", "c"]]


def test_equal_text_and_vectors_have_one_file(tmp_path: Path) -> None:
    path = cache_path(tmp_path, IDENTITY, TEXT)
    assert path == cache_path(tmp_path, dict(reversed(IDENTITY.items())), iter(map(tuple, TEXT)))
    assert path.parent == tmp_path
    assert path.suffix == ".npy"


@pytest.mark.parametrize(
    "text",
    [
        [["The", "bank", "."], ["a", "b\tc"]],
        [["The", "bank", ".\na\tb"], ["c"]],
        [["The", "bank"], [".", "a\tb", "c"]],
        [["The", "bank", "."], [], ["a\tb", "c"]],
        [["a\tb", "c"], ["The", "bank", "."]],
    ],
)
def test_another_text_of_the_same_characters_has_another_file(tmp_path: Path, text: list[list[str]]) -> None:
    assert cache_path(tmp_path, IDENTITY, text) != cache_path(tmp_path, IDENTITY, TEXT)


def test_other_vectors_have_another_file(tmp_path: Path) -> None:
    for changed in ({"sha256": "cd"}, {"state": "warm"}, {"layers": [[1.0, 0.0]]}):
        assert cache_path(tmp_path, {**IDENTITY, **changed}, TEXT) != cache_path(tmp_path, IDENTITY, TEXT)
