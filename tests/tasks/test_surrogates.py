"""A lone surrogate in the JSON of snli, squad and coref: replaced when the file is read, and the run is saved."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
import small_runs

from elmo.tasks.config import make_config
from elmo.tasks.task import load_task
from elmo.tasks.train import train

WORDS = {"snli": "bench", "squad": "Basel", "coref": "dog"}  # a word that occurs in the examples


@pytest.mark.parametrize("name", WORDS)
def test_a_run_on_json_with_a_lone_surrogate_is_saved(tmp_path: Path, name: str, caplog) -> None:
    config = small_runs.small_config(tmp_path, name, train={"epochs": 1, "device": "cpu"})
    path = Path(config.data.train)
    text = path.read_text(encoding="utf-8")
    word = WORDS[name]
    damaged = text.replace(word, rf"\ud83c{word[1:]}")  # the first half of an emoji
    path.write_text(damaged, encoding="utf-8")
    number = next(n for n, line in enumerate(damaged.splitlines(), 1) if r"\ud83c" in line)
    with caplog.at_level(logging.WARNING):
        examples = load_task(name).read(path)
    tokens = {token for example in examples for sentence in example.sentences for token in sentence}
    assert any("\ufffd" in token for token in tokens)
    warnings = [record.getMessage() for record in caplog.records if "surrogate" in record.getMessage()]
    assert len(warnings) == 1
    assert f"{path}:{number}." in warnings[0]
    train(config, tmp_path / "run")
    words = json.loads((tmp_path / "run" / "words.json").read_text(encoding="utf-8"))["words"]
    assert any("\ufffd" in word for word in words)


def test_a_pair_of_surrogates_and_an_escaped_backslash_are_not_changed(tmp_path: Path, caplog) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text(r'{"label": 0, "premise": ["\ud83d\ude00", "\\ud800"], "hypothesis": ["a"]}', encoding="utf-8")
    (example,) = load_task("snli").read(path)
    assert example.premise == ("😀", "\\ud800")
    assert not caplog.records


def test_a_run_is_saved_if_the_name_of_its_data_is_not_utf8(tmp_path: Path) -> None:
    config = small_runs.small_config(tmp_path, "snli", train={"epochs": 1, "device": "cpu"})
    odd = tmp_path / "caf\udce9.jsonl"  # the byte 0xe9 in a file name, as Python shows it
    try:
        odd.write_bytes(Path(config.data.train).read_bytes())
    except (OSError, UnicodeError):
        pytest.skip("the file system allows only UTF-8 names")
    paths = {"data": {"train": str(odd), "dev": str(odd)}}
    record = train(make_config(load_task("snli"), config.to_dict(), paths), tmp_path / "run")
    assert record["data"]["train"]["path"] == str(odd)
    stored = json.loads((tmp_path / "run" / "record.json").read_text(encoding="utf-8"))
    assert stored["data"]["train"]["path"] == str(odd)
