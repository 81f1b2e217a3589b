"""Installs each extra alone in a clean environment and uses it: `python3 run.py extras`.

    python3 run.py extras                                    every extra on every Python from 3.10 on that is found
    python3 run.py extras spacy onnx --python python3.10     some of them, on one Python
    python3 run.py extras --lowest                           with the lowest versions that pyproject.toml allows
    python3 run.py extras --out benchmarks/results/extras_202611.md   adds the results to the tables of a file

The wheel of the checkout is installed once per Python with the tested torch and the newest versions of the rest. Each
extra is then added to a copy of that environment. An extra passes if pip's check of all requirements passes and what
it is for works: its module in elmo/integrations, the examples whose names begin with it, and its line in COMMANDS.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from clean_install import ROOT, CleanEnvironment, build_wheel, interpreters, seconds_since, torch_constraint

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DEVELOPMENT = (
    "test",
    "browser",
    "integrations",
    "release",
    "docs",
    "notebooks",
)  # for the checkout; their own commands install them
TINY = ["--model", "tiny-random"]
EMBED = ["-m", "elmo", "embed", "in.txt"]
SERVE = """
import json, subprocess, sys, urllib.request
words = [sys.executable, "-m", "elmo", "serve", "--model", "tiny-random", "--port", "0", "--json"]
server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
try:
    assert urllib.request.urlopen(json.loads(server.stdout.readline())["url"] + "/readyz").status == 200
finally:
    server.terminate()
    server.wait()
"""
COMMANDS: dict[str, list[str]] = {  # extra -> a command that needs its libraries
    "zstd": [*EMBED, "out.jsonl.zst", *TINY],
    "moses": [*EMBED, "moses.hdf5", *TINY, "--tokenizer", "moses:en"],
    "spacy": [*EMBED, "spacy.hdf5", *TINY, "--tokenizer", "spacy:en"],
    "parquet": [*EMBED, "out.parquet", *TINY],
    "track": [
        "-m", "elmo", "pretrain", "in.txt", "--out", "run", "--preset", "tiny", "--max-steps", "2", "--rows", "2",
        "--workers", "1", "--set", "data.heldout=0.2", "--set", "train.tensorboard=true",
    ],
    "serve": ["-c", SERVE],
    "onnx": ["-m", "elmo", "export", "onnx", "tiny-random", "model.onnx"],
}  # fmt: skip
ARGUMENTS = {"onnx_runtime.py": ["model.onnx"], "hugging_face_hub.py": ["saved_model"]}  # example -> its arguments
PREFIXES = {"sklearn": "scikit_learn", "huggingface": "hugging_face"}  # of the examples, where it is not the extra
TEXT = "The cat sat on the mat .\nIt slept near the bank of the river .\n" * 100


def main() -> None:
    parser = argparse.ArgumentParser(prog="run.py extras", description="Installs each extra alone and uses it.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="Extras. Default: all that are meant for users.")
    parser.add_argument(
        "--python", action="append", help="An interpreter; may be repeated. Default: all that are found."
    )
    parser.add_argument("--lowest", action="store_true", help="The lowest versions of the extra's own libraries.")
    parser.add_argument(
        "--out", type=Path, help="A Markdown file for the tables; earlier results for the same case are replaced."
    )
    options = parser.parse_args()
    extras = [name for name in PROJECT["optional-dependencies"] if name not in DEVELOPMENT]
    unknown = [name for name in options.names if name not in extras]
    if unknown:
        parser.error(f"{unknown[0]!r} is not an extra for users; there are: {', '.join(extras)}")
    pythons = options.python or list(interpreters().values())
    earlier = stored_results(options.out) if options.out else []
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        wheel = build_wheel(Path(name))
        for python in pythons:
            for result in check_extras(Path(name), wheel, python, options.names or extras, options.lowest):
                print(json.dumps(result), flush=True)
                results.append(result)
                if options.out:  # after every extra, because the whole run takes hours
                    options.out.write_text(page(merged(earlier, results)), encoding="utf-8")
    sys.exit(1 if any(result["problem"] for result in results) else 0)


def check_extras(folder: Path, wheel: Path, python: str, extras: list[str], lowest: bool) -> Any:
    """Yields one record per extra, and first that of the package without extras."""
    constraints = torch_constraint(folder)
    start = time.monotonic()
    core = CleanEnvironment(folder / "core", python)
    label = python_version(core)
    is_good = core.install(str(wheel), constraints=constraints) and core.check()
    record = {"python": label, "lowest": lowest, "extra": "", "seconds": seconds_since(start)}
    record["problem"] = "" if is_good else core.problem
    (folder / "work").mkdir(exist_ok=True)
    if is_good:
        record |= {"versions": shown_versions(core, ["torch", "numpy"]), "megabytes": round(core.megabytes())}
        record["problem"] = "" if core.run_python("-m", "elmo", "doctor", cwd=folder / "work") else core.problem
    yield record
    for extra in extras if is_good else []:
        yield check_extra(folder, wheel, core, extra, constraints, label, lowest)


def check_extra(
    folder: Path, wheel: Path, core: CleanEnvironment, extra: str, constraints: Path, label: str, lowest: bool
) -> dict[str, Any]:
    """Adds one extra to a copy of `core` and runs what it is for."""
    start = time.monotonic()
    environment = core.copy(folder / "extra")
    pins = [item.replace(">=", "==") for item in requirements(extra)] if lowest else []
    done = environment.install(f"elmo-lm[{extra}] @ {wheel.as_uri()}", *pins, constraints=constraints)
    record: dict[str, Any] = {"python": label, "lowest": lowest, "extra": extra, "seconds": seconds_since(start)}
    if done:
        record["versions"] = shown_versions(environment, [re.split(r"[\[>]", item)[0] for item in requirements(extra)])
        record["megabytes"] = round(environment.megabytes() - core.megabytes())
        done = environment.check()
    uses = uses_of(extra)
    record["uses"] = [name for name, _ in uses]
    work = Path(tempfile.mkdtemp(dir=folder))
    (work / "in.txt").write_text(TEXT, encoding="utf-8")
    for name, command in uses if done else []:
        if not environment.run_python(*command, cwd=work):
            done, environment.problem = False, f"{name}: {environment.problem}"
            break
    record["problem"] = "" if done else environment.problem
    return record


def uses_of(extra: str) -> list[tuple[str, list[str]]]:
    """(Name, arguments of python) of everything that needs the extra and of its examples."""
    if extra == "all":
        return [use for name in COMMANDS for use in uses_of(name)]
    stem = extra.replace("-", "_")
    folder, prefix = ROOT / "examples", PREFIXES.get(extra, stem)
    examples = sorted({*folder.glob(f"{prefix}.py"), *folder.glob(f"{prefix}_*.py")})
    uses = [("command", COMMANDS[extra])] if extra in COMMANDS else []
    if list((ROOT / "elmo" / "integrations").glob(f"{stem}*")):
        uses.append((f"import elmo.integrations.{stem}", ["-c", f"import elmo.integrations.{stem}"]))
    return uses + [(path.name, [str(path), *ARGUMENTS.get(path.name, [])]) for path in examples]


def requirements(extra: str) -> list[str]:
    """The requirements of an extra, with those of the extras that it names."""
    listed = PROJECT["optional-dependencies"][extra]
    nested = [name for item in listed if item.startswith("elmo-lm[") for name in item[8:-1].split(",")]
    own = [item for item in listed if not item.startswith("elmo-lm[")]
    return own + [item for name in nested for item in requirements(name)]


def shown_versions(environment: CleanEnvironment, names: list[str]) -> str:
    installed = environment.versions()
    return ", ".join(f"{name} {installed.get(name.lower().replace('_', '-'), 'missing')}" for name in names)


def python_version(environment: CleanEnvironment) -> str:
    code = "import platform; print(platform.python_version())"
    return subprocess.run([str(environment.python), "-c", code], stdout=subprocess.PIPE, text=True).stdout.strip()


def stored_results(path: Path) -> list[dict[str, Any]]:
    """The results at the end of a page, or none if there is no page yet."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def merged(earlier: list[dict[str, Any]], results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The earlier results with the new ones in the place of those of the same Python, extra and choice of versions."""
    rows = {(row["python"], row["lowest"], row["extra"]): row for row in [*earlier, *results]}
    names = ["", *PROJECT["optional-dependencies"]]
    order = sorted(rows, key=lambda key: ([int(part) for part in key[0].split(".")], key[1], names.index(key[2])))
    return [rows[key] for key in order]


def page(results: list[dict[str, Any]]) -> str:
    """A Markdown page with one table per Python and choice of versions, and the results as JSON lines."""
    lines = [
        "# Each extra alone in a clean environment",
        "",
        f"`python3 run.py extras` on {platform.system()} {platform.machine()}, {os.cpu_count()} cores.",
        "The time is that of the installation. The size is what the extra adds to the package without extras.",
    ]
    for python, lowest in dict.fromkeys((result["python"], result["lowest"]) for result in results):
        lines += [
            "",
            f"## Python {python}, {'lowest' if lowest else 'newest'} versions",
            "",
            "| extra | versions | time | MB | used | result |",
            "|---|---|---|---|---|---|",
        ]
        for result in results:
            if (result["python"], result["lowest"]) == (python, lowest):
                cells = [result["extra"] or "(none)", result.get("versions", ""), result["seconds"]]
                cells += [
                    str(result.get("megabytes", "")),
                    ", ".join(result.get("uses", ["elmo doctor"])) or "install only",
                ]
                cells += [result["problem"].replace("|", "/") or "works"]
                lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", "```json", *(json.dumps(result) for result in results), "```", ""])


if __name__ == "__main__":
    main()
