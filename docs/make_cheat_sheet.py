"""Writes the tables of docs/cheat-sheet.md from the help of the commands.

python docs/make_cheat_sheet.py            rewrite the tables in docs/cheat-sheet.md
python docs/make_cheat_sheet.py --check    exit 1 if they are out of date
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from generated_part import write_part

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
import typer  # noqa: E402

from elmo.cli.main import VERBS, app  # noqa: E402

SHEET = ROOT / "docs" / "cheat-sheet.md"
BEGIN, END = "<!-- tables: made by docs/make_cheat_sheet.py -->", "<!-- end of tables -->"
SHARED = 3  # an option that so many commands explain with the same words is explained once


def main() -> None:
    write_part(SHEET, BEGIN, END, tables())


def tables() -> str:
    """What each command does with an example, the shared options with their help, and the other options by name."""
    listed = list(commands())
    uses = Counter((flag_of(option), option.help) for _, command in listed for option in options(command))
    shared = set(
        {flag: (flag, text) for (flag, text), count in reversed(uses.most_common()) if count >= SHARED}.values()
    )
    does = [f"| `elmo {name}` | {summary(name, command)} | `{example(command)}` |" for name, command in listed]
    explained = [f"| `{flag}` | {in_table(text)} |" for flag, text in sorted(shared)]
    rest = []
    for name, command in listed:
        own = [option for option in options(command) if (flag_of(option), option.help) not in shared]
        rest.append(f"| `elmo {name}` | {' '.join(f'`{flag_of(option)}`' for option in own) or '–'} |")
    parts = [
        ["## Commands", "", "| command | what it does | example |", "|---|---|---|", *does],
        ["", "## Options that several commands have", "", "| option | meaning |", "|---|---|", *explained],
        ["", "## Further options of each command", "", "| command | options |", "|---|---|", *rest],
    ]
    return "\n".join(line for part in parts for line in part) + "\n"


def commands(group: Any = None, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(Words after `elmo`, command) of every command; a verb with several commands yields those."""
    group = group or typer.main.get_command(app)
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if hasattr(command, "list_commands"):
            yield from commands(command, f"{prefix}{name} ")
        else:
            yield prefix + name, command


def options(command: Any) -> list[Any]:
    return [item for item in command.params if item.param_type_name == "option" and not item.hidden]


def flag_of(option: Any) -> str:
    """The long form of an option."""
    return str(max(option.opts, key=len))


def in_table(text: str) -> str:
    return text.replace("|", "\\|")


def summary(name: str, command: Any) -> str:
    """The line of `elmo --help`; for a command of a verb the first sentence of its help."""
    return VERBS[name][1] if name in VERBS else " ".join(command.help.split("\n\n")[0].split())


def example(command: Any) -> str:
    return in_table(str(command.epilog).removeprefix("Example: "))


if __name__ == "__main__":
    main()
