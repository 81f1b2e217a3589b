"""A run as TOML and flags: what overrides what, what is refused, and that the written settings are the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elmo.errors import ConfigError, DataError
from elmo.model.config import PRESETS
from elmo.pretrain.config import RECIPES, make_config, to_toml
from elmo.settings import parse_assignment, read_toml


@pytest.mark.parametrize(
    "layers",
    [
        [{}],
        [{"recipe": "paper", "preset": "original", "data": {"files": ["a.txt", 'b\\c "q".txt', "ü\t1.txt"]}}],
        [{"model": {"chars": None, "words": {"num_words": 9, "word_dim": 128}}, "objective": {"tied": True}}],
        [{"model": {"lstm": {"cell_clip": None, "proj_clip": 1.5}, "chars": {"filters": [[1, 4], [2, 8]]}}}],
        [{"data": {"max_vocab": None, "reading": {"tokenize": "default"}}, "optim": {"lr": 1e-5, "final": 1}}],
        [
            {
                "train": {"stop_after": 12.5, "patience": 3, "tensorboard": True},
                "objective": {"softmax": "adaptive", "cutoffs": [10, 20]},
            }
        ],
    ],
)
def test_written_settings_read_back_as_the_same_run(layers: list[dict[str, Any]], tmp_path: Path) -> None:
    config = make_config(*layers)
    path = tmp_path / "config.toml"
    path.write_text(to_toml(config), encoding="utf-8")
    assert make_config(read_toml(path)) == config


def test_recipe_and_preset_come_first_and_later_layers_win() -> None:
    file = {"recipe": "paper", "preset": "tiny", "optim": {"lr": 0.1}, "train": {"rows": 64}}
    config = make_config(file, {"train": {"rows": 32}}, {"optim": {"clip_norm": 5.0}})
    assert (config.optim.name, config.optim.lr, config.optim.clip_norm) == ("adagrad", 0.1, 5.0)
    assert (config.train.rows, config.train.steps) == (32, 20)
    assert config.model == PRESETS["tiny"]
    assert make_config(file, {"preset": "small"}).model == PRESETS["small"]


def test_paper_recipe_is_the_references() -> None:
    config = make_config({"recipe": "paper", "preset": "original"})
    assert (config.optim.name, config.optim.lr, config.optim.decay, config.optim.clip_norm) == (
        "adagrad",
        0.2,
        "none",
        10,
    )
    assert (config.optim.times_unroll, config.train.steps, config.train.reset) == (True, 20, 0.0)
    assert (config.objective.softmax, config.objective.num_samples, config.objective.dropout) == ("sampled", 8192, 0.1)
    assert (config.model.lstm.cell_dim, config.model.lstm.proj_dim) == (4096, 512)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("preset", PRESETS)
def test_every_recipe_goes_with_every_preset(recipe: str, preset: str) -> None:
    assert make_config({"recipe": recipe, "preset": preset}).model == PRESETS[preset]


def test_words_replace_characters_at_the_models_width() -> None:
    config = make_config({"preset": "tiny", "objective": {"tied": True}}, words=True)
    assert config.model.chars is None
    assert config.model.words is not None
    assert config.model.words.word_dim == config.model.lstm.proj_dim


@pytest.mark.parametrize(
    ("table", "word_dim"), [({"num_words": 9, "word_dim": 40}, 40), ({"word_dim": 40}, 40), ("off", 64), (None, 64)]
)
def test_words_keep_the_given_width(table: Any, word_dim: int) -> None:
    config = make_config({"preset": "tiny", "model": {"words": table}}, words=True)
    assert config.model.chars is None
    assert config.model.words is not None
    assert config.model.words.word_dim == word_dim


@pytest.mark.parametrize(
    ("settings", "message", "hint"),
    [
        ({"trian": {}}, "'trian'", "'train'"),
        ({"train": {"row": 3}}, "'train.row'", "'train.rows'"),
        ({"model": {"lstm": {"cell_dims": 3}}}, "'model.lstm.cell_dims'", "'model.lstm.cell_dim'"),
        ({"train": 3}, "train", ""),
        ({"recipe": "old"}, "'old'", ""),
        ({"preset": "huge"}, "'huge'", ""),
        ({"train": {"rows": 0}}, "train.rows is 0; expected a whole number of at least 1.", ""),
        ({"train": {"rows": "many"}}, "'many'", ""),
        ({"train": {"max_steps": 2.5}}, "2.5", ""),
        ({"train": {"rows": 10, "accumulate": 3}}, "accumulate 3", ""),
        ({"train": {"keep": 1}}, "train.keep is 1", ""),
        ({"train": {"reset": 2}}, "train.reset is 2", ""),
        ({"train": {"precision": "float16"}}, "float16", ""),
        ({"objective": {"softmax": "half"}}, "'half'", ""),
        ({"objective": {"dropout": 1.0}}, "1.0", ""),
        ({"objective": {"tied": True}}, "tied", ""),
        ({"objective": {"cutoffs": [9]}}, "objective.cutoffs are for the adaptive softmax", "softmax=adaptive"),
        ({"data": {"max_chars": 60}}, "data.max_chars is 60, but the model reads 50", "--max-chars"),
        ({"optim": {"lr": "abc"}}, "optim.lr is 'abc'; expected a number above 0.", ""),
        ({"optim": {"beta1": "x"}}, "optim.beta1 is 'x'; expected a number from 0 to below 1.", ""),
        ({"optim": {"name": "adam"}}, "optim.name is 'adam'; expected one of ", "'adamw'"),
        ({"train": {"shuffle": "no"}}, "train.shuffle is 'no'; expected true or false.", ""),
        ({"train": {"tensorboard": 1}}, "train.tensorboard is 1; expected true or false.", ""),
        ({"model": {"chars": {"filters": [[1, 2, 3]]}}}, "model.chars.filters[0] is [1, 2, 3]", ""),
        ({"data": {"heldout": "half"}}, "data.heldout is 'half'; expected a number", ""),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as error:
        make_config(settings)
    assert message in error.value.message
    assert hint in error.value.hint


@pytest.mark.parametrize("word", ["false", "False"])
def test_set_turns_shuffling_off_with_either_spelling_of_false(word: str) -> None:
    assert make_config(parse_assignment(f"train.shuffle={word}")).train.shuffle is False


def test_words_with_settings_of_the_wrong_shape_are_named() -> None:
    with pytest.raises(ConfigError, match=r"model\.lstm is 3; expected a table"):
        make_config({"model": {"lstm": 3}}, words=True)
    with pytest.raises(ConfigError, match=r"model\.words is 3; expected a table"):
        make_config({"model": {"words": 3}}, words=True)
    with pytest.raises(ConfigError, match=r"model is 3; expected a table"):
        make_config({"model": 3}, words=True)


def test_files_that_are_no_toml_are_named(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    with pytest.raises(DataError, match=r"run\.toml"):
        read_toml(path)
    path.write_text("rows = = 3\n")
    with pytest.raises(ConfigError, match="not valid TOML"):
        read_toml(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not valid TOML"):
        read_toml(path)
