"""Writes the file tables of docs/tour.md from the first sentence of each module's docstring.

python docs/make_tour.py            rewrite the tables in docs/tour.md
python docs/make_tour.py --check    exit 1 if they are out of date
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from generated_part import write_part

ROOT = Path(__file__).resolve().parent.parent
TOUR = ROOT / "docs" / "tour.md"
BEGIN, END = "<!-- tables: made by docs/make_tour.py -->", "<!-- end of tables -->"


def main() -> None:
    write_part(TOUR, BEGIN, END, tables())


def tables() -> str:
    """One section per package: its docstring, then a table of its files."""
    sections = []
    folders = sorted({path.parent for path in (ROOT / "elmo").rglob("*.py")}, key=order)
    for folder in folders:
        name = folder.relative_to(ROOT).as_posix()
        rows = [
            f"| `{path.stem}` | {summary(path)} |" for path in sorted(folder.glob("*.py")) if path.stem != "__init__"
        ]
        table = "\n".join(["| file | what it holds |", "|---|---|", *rows]) + "\n" if rows else ""
        sections.append(f"### {name}/\n\n{summary(folder / '__init__.py')}\n\n{table}")
    return "\n".join(sections)


PACKAGES = (  # the data path: what comes first is imported by what comes later
    "", "charts", "text", "kernels", "model", "weights", "embed", "pretrain", "tasks", "probes", "analysis", "report",
    "bench", "compat", "serve", "cli",
)  # fmt: skip


def order(folder: Path) -> tuple[int, str]:
    parts = folder.relative_to(ROOT / "elmo").parts
    package = parts[0] if parts else ""
    return (PACKAGES.index(package) if package in PACKAGES else len(PACKAGES), "/".join(parts))


def summary(path: Path) -> str:
    """The first sentence or line of a module's docstring, safe inside a Markdown table."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return re.sub(r"\s+", " ", docstring.split("\n\n")[0]).replace("|", "\\|")


if __name__ == "__main__":
    main()
