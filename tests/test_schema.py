"""The checker of JSON shapes: the first difference is named with its place, what is there, and what is expected."""

from __future__ import annotations

import math
from typing import Any

import pytest

from elmo.errors import DataError, OutputError
from elmo.schema import ANY, COUNT, NUMBER, SHARE, Keys, List, Maybe, Number, OneOf, check_shape, find_problem


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        ("x", str),
        (True, bool),
        (1, NUMBER),
        (1.5, NUMBER),
        (0, COUNT),
        (0.5, SHARE),
        (None, ANY),
        (None, Maybe(str)),
        ({"a": 1, "other": None}, {"a": NUMBER}),
        ({}, {"a?": NUMBER}),
        ({"a": 1, "b": "x"}, {"a": NUMBER, "*": str}),
        ([], List(str)),
        ([["x"], []], List(List(str))),
        ({"input": 1}, Keys("input|output", COUNT)),
        ("dev", OneOf("train", "dev")),
        ([1, 2], List(NUMBER, length=2)),
    ],
)
def test_a_value_of_its_shape_has_no_problem(value: Any, shape: Any) -> None:
    assert find_problem(value, shape) is None


@pytest.mark.parametrize(
    ("value", "shape", "message"),
    [
        (None, str, "the value is null; expected a string"),
        (1, bool, "the value is 1; expected true or false"),
        (True, NUMBER, "the value is true; expected a number"),
        (math.nan, NUMBER, "the value is nan; expected a number"),
        (math.inf, NUMBER, "the value is inf; expected a number"),
        (1.0, COUNT, "the value is 1.0; expected a whole number of at least 0"),
        (-1, COUNT, "the value is -1; expected a whole number of at least 0"),
        (1.5, SHARE, "the value is 1.5; expected a number from 0 to 1"),
        ({}, {"a": {"b": str}}, "a is missing; expected an object"),
        ({"a": {}}, {"a": {"b": str}}, "a.b is missing; expected a string"),
        ({"a": None}, {"a?": str}, "a is null; expected a string"),
        ([], {"a": str}, "the value is a list of 0 items; expected an object"),
        ({"a": 1, "b": 2}, {"a": NUMBER, "*": str}, "b is 2; expected a string"),
        ({"c": [{"d": "x"}]}, {"c": List({"d": NUMBER})}, "c[0].d is 'x'; expected a number"),
        ([], List(str, least=1), "the value is a list of 0 items; expected a list of at least 1 items"),
        ({}, Keys(".*", str, least=1), "the value is an empty object; expected an object that is not empty"),
        ({"x": 1}, Keys("input|output", COUNT), "the value is an object with the key 'x'; expected keys such as"),
        ("x", OneOf("train", "dev"), "the value is 'x'; expected one of train, dev"),
        (5, Maybe(str), "the value is 5; expected a string"),
        ({"\ud800": 1}, {"*": str}, "\\ud800 is 1; expected a string"),
    ],
)
def test_the_first_difference_is_named(value: Any, shape: Any, message: str) -> None:
    assert str(find_problem(value, shape)).startswith(message)


def test_numbers_that_python_cannot_print_or_convert_are_named() -> None:
    assert "0000..." in str(find_problem(10**400, NUMBER))
    assert "thousands of digits" in str(find_problem(10**5000, Number(low=0)))


def test_the_error_names_the_file_and_is_of_the_given_class() -> None:
    with pytest.raises(DataError, match=r"a\.json: x is missing; expected a string\."):
        check_shape({}, {"x": str}, "a.json")
    with pytest.raises(OutputError) as error:
        check_shape({}, {"x": str}, "a.json", error=OutputError, hint="Delete it.")
    assert error.value.hint == "Delete it."
