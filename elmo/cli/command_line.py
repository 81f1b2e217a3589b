"""The command line as text, stored in a record so that its run can be repeated."""

from __future__ import annotations

import shlex
from collections.abc import Iterator


def command_line(verb: str, *words: str, **options: object) -> str:
    """The text `elmo VERB words --options`, quoted for a shell.

    True becomes a flag without a value, a list becomes one option per item; None and False are left out.
    """
    return shlex.join(["elmo", verb, *words, *(word for option in options.items() for word in _option_words(*option))])


def _option_words(name: str, value: object) -> Iterator[str]:
    flag = f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
    for item in value if isinstance(value, list) else [value]:
        if item is True:
            yield flag
        elif item is not None and item is not False:
            yield from (flag, str(item))
