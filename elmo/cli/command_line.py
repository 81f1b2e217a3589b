"""The command a record was asked for with, kept in it so that it can be asked for again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator


def command_line(verb: str, *words: str, **options: object) -> str:
    """`elmo VERB words --options`; True is a flag, a list one option for each, None and False were not given."""
    return shlex.join(["elmo", verb, *words, *(part for pair in options.items() for part in _option(*pair))])


def _option(name: str, value: object) -> Iterator[str]:
    flag = f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
    for one in value if isinstance(value, list) else [value]:
        if one is True:
            yield flag
        elif one is not None and one is not False:
            yield from (flag, str(one))
