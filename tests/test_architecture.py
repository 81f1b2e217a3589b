"""The law of the tree: who may import whom, what may not import torch, and how files are named and sized."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "elmo"
FILES = sorted(path for path in PACKAGE.rglob("*.py"))
EVERYWHERE = {
    "devices", "errors", "files", "mapped_arrays", "progress", "record_shapes", "records", "run_folder", "schema",
    "settings", "staging", "stop_signals", "worker_pool", "xz", "zst",
}  # may be imported by all  # fmt: skip

# package -> what of elmo it may import besides itself and EVERYWHERE. "model.mix" allows that one module only.
MAY_IMPORT = {
    "errors": set(),
    "files": set(),
    "mapped_arrays": set(),
    "staging": set(),
    "xz": set(),
    "zst": set(),
    "progress": set(),
    "settings": set(),
    "records": set(),
    "devices": set(),
    "run_folder": set(),
    "record_shapes": set(),
    "schema": set(),
    "stop_signals": set(),
    "worker_pool": set(),
    "charts": set(),
    "text": set(),
    "model": set(),
    "kernels": {"model"},
    "weights": {"model"},
    "pretrain": {"text", "kernels", "model", "weights", "charts"},
    "embed": {"text", "kernels", "model", "weights"},
    "tasks": {
        "text", "model.bilm", "model.mix", "weights.store", "weights.checkpoint_folder", "embed",
        "pretrain.config", "pretrain.finetune",  # a biLM may be fine-tuned on the task's text first
    },
    "probes": {"text", "embed"},
    "analysis": {"text", "model", "weights", "embed", "charts"},
    "report": {"charts", "text"},
    "bench": {"text", "kernels", "model", "weights", "embed"},
    "serve": {"text", "embed", "analysis"},
    "compat": {"text", "model", "weights", "embed", "integrations.flair"},  # flair's old class, by its new one
    "integrations": {"text", "model", "weights", "embed"},
    "cli": {
        "text", "kernels", "model", "weights", "pretrain", "embed", "tasks", "probes", "analysis", "report", "bench",
        "serve", "compat", "integrations", "charts",
    },
    "__main__": {"cli"},
}  # fmt: skip
HOMES = ast.literal_eval(
    next(
        node.value
        for node in ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_HOMES"
    )
)


def module_of(path: Path) -> str:
    """elmo/a/b.py -> "a.b", relative to the package."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imports_of(tree: ast.AST) -> list[tuple[int, str]]:
    """(line, module relative to elmo) of every import of our own code, at the top or inside a function."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            # `from elmo import text` imports elmo.text; `from elmo import load` imports load's home
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [HOMES.get(name.removeprefix("elmo."), name) for name in names]
        else:
            continue
        found += [(node.lineno, name.removeprefix("elmo.")) for name in names if name.startswith("elmo.")]
    return found


def forbidden(module: str, target: str) -> bool:
    package, target_package = module.split(".")[0], target.split(".")[0]
    if target_package in EVERYWHERE - {package} and package != "errors" and module != "":
        return False
    if target == "__version__" or package == "":  # the package's own front hands out names from everywhere
        return False
    if package == target_package:
        return package == "tasks" and sibling_task(module, target)
    allowed = MAY_IMPORT.get(package, set())
    return target_package not in allowed and not any(target == a or target.startswith(f"{a}.") for a in allowed)


def sibling_task(module: str, target: str) -> bool:
    here, there = module.split("."), target.split(".")
    inside_one = (PACKAGE / "tasks" / here[1]).is_dir() if len(here) > 2 else False
    other = (PACKAGE / "tasks" / there[1]).is_dir() if len(there) > 1 else False
    return inside_one and other and there[1] not in (here[1], "layers")


def test_imports_point_one_way():
    wrong = []
    for path in FILES:
        for line, target in imports_of(ast.parse(path.read_text(encoding="utf-8"))):
            if forbidden(module_of(path), target):
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports elmo.{target}")
    assert not wrong, (
        "\n  ".join(["These imports point up the data path:", *wrong])
        + "\nMove the code to the package that may use it (docs/tour.md says which), or pass the value in."
        + "\nOnly if the plan itself is wrong, change MAY_IMPORT here and docs/tour.md in one commit that says why."
    )


@pytest.mark.parametrize(
    ("module", "line", "is_wrong"),
    [
        ("text.chars", "import elmo.model.bilm", True),
        ("text.chars", "from elmo.errors import DataError", False),
        ("text.chars", "from elmo import load", True),
        ("embed.embedder", "from elmo import __version__", False),
        ("errors", "from elmo.files import need", True),
        ("model.bilm", "from elmo import text", True),
        ("model.bilm", "from elmo.kernels.lstm import scan", True),
        ("kernels.cpu.native", "from elmo.model.bilm import BiLM", False),
        ("kernels.cpu.native", "from elmo.embed.load import load", True),
        ("tasks.task", "from elmo.model.mix import ScalarMix", False),
        ("tasks.task", "from elmo.model.lstm import LSTMStack", True),
        ("cli.embed", "from elmo.embed.dump import dump", False),
        ("embed.dump", "from elmo.cli.main import main", True),
        ("newpackage.thing", "from elmo.text.chars import encode", True),
    ],
)
def test_import_rule_tells_right_from_wrong(module, line, is_wrong):
    assert any(forbidden(module, target) for _, target in imports_of(ast.parse(line))) == is_wrong


def test_every_package_has_a_rule():
    packages = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in FILES} - {"__init__"}
    unknown = packages - set(MAY_IMPORT)
    assert not unknown, f"Add a line to MAY_IMPORT for {unknown}, and to docs/tour.md."


def loaded_after_importing(modules: list[str]) -> set[str]:
    code = f"import sys, importlib\nfor m in {modules!r}: importlib.import_module(m)\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_text_and_task_data_need_no_torch():
    free = [*PACKAGE.glob("text/*.py"), *PACKAGE.glob("tasks/*/data.py"), *PACKAGE.glob("tasks/*/score.py")]
    loaded = loaded_after_importing([f"elmo.{module_of(path)}" for path in free])
    assert "torch" not in loaded, "elmo.text and tasks/*/{data,score}.py run without torch: move what needs it."


def test_import_elmo_and_the_command_line_are_light():
    verbs = [f"elmo.{module_of(path)}" for path in FILES if path.parent.name == "cli"]
    loaded = loaded_after_importing(["elmo", "elmo.__main__", *verbs])
    heavy = {"torch", "numpy", "h5py", "safetensors", "rich"} & loaded
    assert not heavy, f"import {heavy} inside the verb's `run`, not at the top of its file: --help must stay quick."


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_file_keeps_the_style(path):
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    docstring = ast.get_docstring(tree) or ""
    assert docstring, "open with a docstring: what it holds and where it stands in the data path"
    assert path.stem not in ("utils", "common", "helpers", "misc", "base"), "name the file for what it holds"
    assert len(path.relative_to(ROOT).parts) <= 4, "never deeper than elmo/a/b/file.py"
    assert (path.parent / "__init__.py").exists(), f"{path.parent} needs an __init__.py"
    lines = text.count("\n")
    is_short = lines <= 300 or "one thing" in docstring
    assert is_short, f"{lines} lines: split it, or let the docstring say why it is one thing"
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute"
            assert node.names[0].name != "*", f"line {node.lineno}: name what you import"
