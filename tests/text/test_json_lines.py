"""JSON lines: where each object stands, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from elmo.errors import DataError
from elmo.text.json_lines import read_json_objects

HINT = "Expected one object per line."


def test_objects_come_with_their_line_and_blank_lines_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "two.jsonl"
    path.write_text('{"word": "Bäume"}\n\n {"word": "x"}', encoding="utf-8")
    assert list(read_json_objects(path, hint=HINT)) == [(f"{path}:1", {"word": "Bäume"}), (f"{path}:3", {"word": "x"})]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"word": "a", "tag": "b", "word": "c"}', "key 'word' occurs 2 times"),
        ('{"score": NaN}', "NaN is not a JSON number"),
        ('["a"]', "holds a list"),
        ("[" * 100_000, "nested too deeply"),
        ("{", "not valid JSON"),
    ],
)
def test_other_lines_are_an_error_with_their_number(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"word": "a"}\n' + line + "\n", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        list(read_json_objects(path, hint=HINT))
    assert caught.value.message.startswith(f"{path}:2: ")
    assert message in caught.value.message
    assert caught.value.hint == HINT
