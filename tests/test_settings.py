"""Settings: what each type of field takes, what errors name, --set, TOML, and which settings differ."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import pytest

from elmo.errors import ConfigError
from elmo.settings import (
    above,
    at_least,
    changed_settings,
    check_fields,
    format_assignment,
    format_toml,
    merge,
    one_of,
    parse_assignment,
    parse_settings,
    read_toml,
)


@dataclass(frozen=True, kw_only=True)
class Inner:
    size: int
    ratio: Annotated[float, at_least(0, below=1)] = 0.5


@dataclass(frozen=True, kw_only=True)
class Config:
    lr: Annotated[float, above(0)] = 0.1
    count: Annotated[int, at_least(1, up_to=1000)] = 1
    shuffle: bool = True
    decay: Annotated[str, one_of("none", "linear", "cosine")] = "none"
    patience: Annotated[int, at_least(1)] | None = None
    sizes: tuple[int, ...] = ()
    files: tuple[str, ...] = ()
    filters: tuple[tuple[int, int], ...] = ()
    inner: Inner = field(default_factory=lambda: Inner(size=1))
    other: Inner | None = None
    task: Any = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.count == 13:
            raise ConfigError("count is 13, which brings bad luck.")


@dataclass(frozen=True, kw_only=True)
class Outer:
    train: Config = field(default_factory=Config)


@pytest.mark.parametrize(
    ("assignment", "value"),
    [
        ("lr=1", 1.0),
        ("lr=2.5e-3", 0.0025),
        ("count=1_000", 1000),
        ("shuffle=false", False),
        ("shuffle=False", False),
        ("shuffle=true", True),
        ("shuffle=True", True),
        ("decay=cosine", "cosine"),
        ("patience=off", None),
        ("patience=3", 3),
        ("sizes=[1, 2]", (1, 2)),
        ("files=a.txt", ("a.txt",)),
        ('files=["a.txt", "b.txt"]', ("a.txt", "b.txt")),
        ("filters=[[1, 2], [3, 4]]", ((1, 2), (3, 4))),
        ("other=off", None),
        ("other.size=7", Inner(size=7)),
        ("inner={size = 2, ratio = 0}", Inner(size=2, ratio=0.0)),
    ],
)
def test_each_type_of_field_takes_its_values(assignment: str, value: Any) -> None:
    config = parse_settings(Config, parse_assignment(assignment))
    parsed = getattr(config, assignment.partition("=")[0].partition(".")[0])
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("assignment", "message", "hint"),
    [
        ("lr=abc", "train.lr is 'abc'; expected a number above 0.", ""),
        ("lr=0", "train.lr is 0; expected a number above 0.", ""),
        ("lr=nan", "train.lr is nan; expected a finite number above 0.", ""),
        ("lr=inf", "train.lr is inf; expected a finite number above 0.", ""),
        ("lr=true", "train.lr is True; expected a number above 0.", ""),
        ("count=2.5", "train.count is 2.5; expected a whole number from 1 to 1,000.", ""),
        ("count=true", "train.count is True; expected a whole number from 1 to 1,000.", ""),
        ("count=off", "train.count is 'off'; expected a whole number from 1 to 1,000.", ""),
        ("shuffle=no", "train.shuffle is 'no'; expected true or false.", ""),
        ("shuffle=0", "train.shuffle is 0; expected true or false.", ""),
        ("decay=cosin", "train.decay is 'cosin'; expected one of none, linear, cosine.", "Did you mean 'cosine'?"),
        ("decay=3", "train.decay is 3; expected one of none, linear, cosine.", ""),
        ("patience=0", 'train.patience is 0; expected a whole number of at least 1, or "off".', ""),
        ("sizes=3", "train.sizes is 3; expected a list.", ""),
        ('sizes=[1, "x"]', "train.sizes[1] is 'x'; expected a whole number.", ""),
        ("files=[1]", "train.files[0] is 1; expected a string.", ""),
        ("filters=[[1, 2], [3]]", "train.filters[1] is [3]; expected a list of 2 values.", ""),
        ("filters=[[1, 2.0]]", "train.filters[0][1] is 2.0; expected a whole number.", ""),
        ("inner.ratio=1", "train.inner.ratio is 1; expected a number from 0 to below 1.", ""),
        ("inner=3", "train.inner is 3; expected a table of settings.", ""),
        ("other.ratio=0.1", "train.other.size is missing; expected a whole number.", ""),
        ("inner.sise=3", "Unknown setting 'train.inner.sise'.", "Did you mean 'train.inner.size'?"),
        ("zzz=3", "Unknown setting 'train.zzz'.", "Known: lr, count,"),
        ("lr.x=3", "train.lr is {'x': 3}; expected a number above 0.", ""),
        ("count=13", "train: count is 13, which brings bad luck.", ""),
    ],
)
def test_errors_name_the_full_key_the_value_and_what_is_expected(assignment: str, message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_settings(Outer, parse_assignment(f"train.{assignment}"))
    assert error.value.message == message
    assert error.value.hint.startswith(hint)


def test_choices_are_listed_once() -> None:
    with pytest.raises(ConfigError) as error:
        parse_settings(Outer, parse_assignment("train.decay=5"))
    assert error.value.message.endswith("expected one of none, linear, cosine.")
    assert error.value.hint == ""


def test_configs_made_in_python_are_checked_too() -> None:
    with pytest.raises(ConfigError, match=r"^lr is -1; expected a number above 0\.$"):
        Config(lr=-1)
    assert Config(sizes=[1, 2], lr=1).sizes == (1, 2)  # type: ignore[arg-type]  # a list becomes a tuple


def test_a_section_may_be_given_its_type_by_the_caller() -> None:
    config = parse_settings(Config, {"task": {"size": 3}}, sections={"task": Inner})
    assert config.task == Inner(size=3)


def test_assignment_without_key_or_value_is_refused() -> None:
    for text in ("train.steps", "=3", ""):
        with pytest.raises(ConfigError, match=r"expected section\.key=value"):
            parse_assignment(text)


@pytest.mark.parametrize(
    "value", [3, 0.1, 1e-5, True, "plain", "a b", "2024", "true", 'q"u', "ü\\", "", [1, 2], ["a", "b"], "[x]", "'x'"]
)
def test_formatted_assignment_reads_back(value: Any) -> None:
    assert parse_assignment(format_assignment("a.b", value)) == {"a": {"b": value}}


def test_toml_reads_back_and_none_is_off(tmp_path: Path) -> None:
    values = {"a": 1, "t": {"x": [1, 2], "y": None, "u": {"z": 'q"\\ü'}}, "b": True}
    path = tmp_path / "settings.toml"
    path.write_text(format_toml(values), encoding="utf-8")
    assert read_toml(path) == merge(values, {"t": {"y": "off"}})


def test_changed_settings_name_both_values_by_full_key() -> None:
    before = {"a": 1, "t": {"x": (1, 2), "y": {"z": 3}, "old": 5}, "s": {"p": 1}}
    after = {"a": 1, "t": {"x": [1, 2], "y": {"z": 4}, "new": 6}, "s": None}
    assert changed_settings(before, after) == {
        "t.y.z": (3, 4),
        "t.old": (5, None),
        "t.new": (None, 6),
        "s": ({"p": 1}, None),
    }
    assert changed_settings(before, after, ignore={"t.y.z", "s", "t.old", "t.new"}) == {}
