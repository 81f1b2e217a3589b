"""The part-of-speech probe for many languages: all treebanks of a folder, layers, static vectors, frequent tags."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from in_process_cli import run_in_process
from rule_vectors import RuleVectors

from elmo.errors import ConfigError
from elmo.probes.languages import find_treebanks, probe_languages
from elmo.probes.linear import FitConfig
from elmo.probes.run import run_probe
from elmo.probes.table import table
from elmo.record_shapes import find_record_problem

TREEBANKS = Path(__file__).parent.parent / "fixtures" / "treebanks"
WORDS = sorted(
    {
        line.split("\t")[1]
        for path in TREEBANKS.glob("*.conllu")
        for line in path.read_text(encoding="utf-8").splitlines()
        if "\t" in line
    }
)
CONFIG = FitConfig(epochs=40, batch=8, learning_rate=0.1)


def one_hot(word: str) -> list[float]:
    return [float(word == other) for other in WORDS]


def source() -> RuleVectors:
    """Layer 0 is zero, layer 1 knows the word."""
    return RuleVectors(lambda sentence, i: [[0.0] * len(WORDS), one_hot(sentence[i])], 2, len(WORDS))


def write_vectors(path: Path) -> None:
    lines = [" ".join([word, *map(str, one_hot(word))]) for word in WORDS]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_every_language_of_a_folder_is_found() -> None:
    treebanks = find_treebanks(TREEBANKS)
    assert list(treebanks) == ["de", "fr"]
    assert treebanks["fr"]["dev"].name == "fr-ud-dev.conllu"


def test_names_with_a_treebank_after_the_language(tmp_path: Path) -> None:
    for split in ("train", "dev", "test"):
        for name in ("en_ewt-ud", "en_gum-ud", "sk"):
            (tmp_path / f"{name}-{split}.conllu").write_text("", encoding="utf-8")
    assert list(find_treebanks(tmp_path)) == ["en_ewt", "en_gum", "sk"]


def test_folder_without_treebanks_is_an_error(tmp_path: Path) -> None:
    for path, reason in ((tmp_path, "there are no treebanks"), (tmp_path / "missing", "no such folder")):
        with pytest.raises(ConfigError, match=reason):
            find_treebanks(path)


def test_an_incomplete_treebank_is_an_error_that_names_the_expected_files(tmp_path: Path) -> None:
    (tmp_path / "cy-ud-train.conllu").write_text("", encoding="utf-8")
    (tmp_path / "cy-ud-dve.conllu").write_text("", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"one dev file") as error:
        find_treebanks(tmp_path)
    assert "cy-ud-train.conllu, cy-ud-dev.conllu, cy-ud-test.conllu" in str(error.value)


def test_record_has_layers_static_vectors_and_most_frequent_tags_of_every_language(tmp_path: Path) -> None:
    write_vectors(tmp_path / "fr.vec")
    record = run_probe(
        "languages", source(), [TREEBANKS], static_vectors=str(tmp_path / "{language}.vec"), config=CONFIG
    )
    assert find_record_problem("probe", record) is None
    languages, mean = record["scores"]["languages"], record["scores"]["mean"]
    assert set(languages) == {"de", "fr"}
    for scores in languages.values():
        assert scores["views"]["1"]["test"] > scores["views"]["0"]["test"]
    assert languages["fr"]["most_frequent_tag"]["test"] == 100.0
    # "alte" is not in the training file and gets the most frequent tag of all; the other 10 of 11 words are right
    assert languages["de"]["most_frequent_tag"]["test"] == pytest.approx(100 * 10 / 11, abs=0.01)
    assert "static" not in languages["de"], "there is no file of German vectors"
    assert languages["fr"]["static"]["test"] > languages["fr"]["views"]["0"]["test"]
    assert mean["static"] == {split: languages["fr"]["static"][split] for split in ("dev", "test")}
    de, fr = (languages[name]["views"]["1"]["test"] for name in ("de", "fr"))
    assert mean["1"]["test"] == pytest.approx((de + fr) / 2, abs=0.01)
    assert len(record["data"]) == 6
    header, *rows = table(record).splitlines()
    assert header.split()[:5] == ["language", "most", "freq.", "static", "0"]
    assert [row.split()[0] for row in rows] == ["de", "fr", "mean"]
    assert rows[0].split()[2] == "-"


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("ner", {"column": "upos"}, "column was given, but the data of the probe ner are not treebanks"),
        ("wsd", {"column": "xpos"}, "column was given, but the data of the probe wsd"),
        ("languages", {"column": "xpos"}, "column is 'xpos', but the probe languages compares universal tags"),
        ("pos", {"column": "iob"}, "column is 'iob'"),
        ("similarity", {"config": CONFIG}, "config was given, but the probe similarity trains no"),
        ("wic", {"cache": Path("kept")}, "cache was given, but the probe wic trains no"),
        ("pos", {"static_vectors": "{language}.vec"}, "static_vectors was given, but the probe pos"),
    ],
)
def test_an_argument_that_the_probe_does_not_have_is_refused(kind: str, options: dict[str, Any], message: str) -> None:
    vectors = source()
    with pytest.raises(ConfigError, match=message):
        run_probe(kind, vectors, [TREEBANKS / "fr"], **options)
    assert vectors.calls == 0


def test_vectors_need_the_language_in_their_name() -> None:
    with pytest.raises(ConfigError, match="in it"):
        probe_languages(source(), TREEBANKS, static_vectors="all.vec", config=CONFIG)


def test_vectors_that_no_language_has_are_refused_before_anything_is_probed(tmp_path: Path) -> None:
    vectors = source()
    pattern = str(tmp_path / "typo" / "{language}.vec")
    with pytest.raises(ConfigError, match=r"No file of vectors was found .*: de, fr") as error:
        probe_languages(vectors, TREEBANKS, static_vectors=pattern, config=CONFIG)
    assert vectors.calls == 0
    assert pattern in error.value.hint
    assert str(tmp_path / "typo" / "de.vec") in error.value.hint


def test_command_probes_a_model_on_all_languages(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    write_vectors(tmp_path / "de.vec")
    done = run_in_process(
        capsys, "probe", "languages", str(TREEBANKS), "--model", "tiny-random", "--vectors",
        str(tmp_path / "{language}.vec"), "--epochs", "2", "--device", "cpu", "--out", str(tmp_path / "record.json"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("mean")
    record = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))
    assert set(record["scores"]["languages"]["de"]["views"]) >= {"0", "1", "2", "mix"}
    assert "--vectors" in record["command"]
