"""Makes the notebooks in docs/notebooks from the scripts of the same name and executes them.

python docs/make_notebooks.py [NAME...]           execute all notebooks, or the named ones, and store their output
python docs/make_notebooks.py --out FOLDER        write them to another folder

A script has cells as editors know them: "# %%" begins code, "# %% [markdown]" begins text in comments. Edit the script
and run this; the notebook is never edited. The extra `notebooks` has what it needs: pip install '.[notebooks]'.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "notebooks"
CELL = re.compile(r"^# %%( \[markdown\])?[ \t]*\n(.*?)(?=^# %%|\Z)", re.M | re.S)
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def main() -> None:
    parser = argparse.ArgumentParser(description="Execute the notebooks of the documentation and store their output.")
    parser.add_argument("names", nargs="*", help="Names of notebooks, without suffix. Default: all.")
    parser.add_argument("--out", type=Path, default=FOLDER, help="Folder for the notebooks.")
    options = parser.parse_args()
    known = sorted(path.stem for path in FOLDER.glob("*.py"))
    unknown = [name for name in options.names if name not in known]
    if unknown:
        parser.error(f"there is no notebook {unknown[0]!r}; expected one of {', '.join(known)}")
    for name in options.names or known:
        script = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
        (options.out / f"{name}.ipynb").write_text(executed(cells_of(script)), encoding="utf-8")
        print(f"{name}.ipynb", file=sys.stderr)


def cells_of(script: str) -> list[tuple[str, str]]:
    """(markdown or code, source) of each cell of a script."""
    cells = []
    for is_text, source in CELL.findall(script):
        lines = source.strip("\n").splitlines()
        text = "\n".join(re.sub(r"^# ?", "", line) for line in lines) if is_text else "\n".join(lines)
        cells.append(("markdown" if is_text else "code", text.strip("\n")))
    return cells


def executed(cells: list[tuple[str, str]]) -> str:
    """The notebook as JSON, with the output of its cells and without anything that differs between two executions."""
    import nbformat
    from nbclient import NotebookClient
    from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

    makers = {"markdown": new_markdown_cell, "code": new_code_cell}
    notebook = new_notebook(cells=[makers[kind](source) for kind, source in cells], metadata={"kernelspec": KERNEL})
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(
            notebook, timeout=None, coalesce_streams=True, resources={"metadata": {"path": folder}}
        ).execute()
    notebook.metadata = {"kernelspec": KERNEL}
    for number, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{number}", {}
        # what a library logs or warns about depends on the machine
        cell["outputs"] = [output for output in cell.get("outputs", []) if output.get("name") != "stderr"]
        if cell.cell_type == "markdown":
            del cell["outputs"]
    return str(nbformat.writes(notebook)) + "\n"


if __name__ == "__main__":
    main()
