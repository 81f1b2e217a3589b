"""The licences of everything that the package installs: `python tests/licences.py` prints the table.

The runtime dependencies of the package and of its extras are followed through the metadata of the installed packages.
A licence that is not permissive, or unknown, is an error, because users of a library inherit it.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = ("zstd", "spacy", "moses", "parquet", "track")
# SPDX names, or what packages without them write; MPL-2.0 binds changes of its own files only
PERMISSIVE = re.compile(
    r"MIT(-CMU|-0)?|Apache([- ]?(Software License|License|2\.0|2))*( License)?|(Modified |New |Simplified )?BSD"
    r"( License|-2-Clause|-3-Clause)?|[23]-Clause BSD License|0BSD|ISC( License( \(ISCL\))?)?|PSF-2\.0|CNRI-Python"
    r"|Python Software Foundation License|Zlib|CC0-1\.0|Unlicense|HPND|BSL-1\.0|LLVM-exception"
    r"|MPL-2\.0|Mozilla Public License 2\.0 \(MPL 2\.0\)|MIT License|The MIT License|Apache License,? (Version )?2\.0",
    re.IGNORECASE,
)
# not permissive, and accepted: libraries of the CUDA builds of torch, which may be redistributed
ACCEPTED = {"nvidia-": "NVIDIA Software License"}


@dataclass(frozen=True)
class Licence:
    """One installed package."""

    package: str
    version: str
    text: str
    is_permissive: bool


def runtime_packages(extras: tuple[str, ...] = ()) -> tuple[list[str], list[str]]:
    """Names of all installed packages that the package needs, directly or not, and of those that are not installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = [*project["dependencies"], *(text for extra in extras for text in project["optional-dependencies"][extra])]
    queue = [Requirement(text) for text in texts]
    found: set[str] = set()
    missing: set[str] = set()
    while queue:
        requirement = queue.pop()
        name = normal(requirement.name)
        if name in found | missing or name == "elmo-lm":
            continue
        try:
            needed = metadata.requires(requirement.name) or []
        except metadata.PackageNotFoundError:
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                missing.add(name)
            continue
        found.add(name)
        parsed = [Requirement(text) for text in needed]
        wanted = ["", *requirement.extras]
        queue += [r for r in parsed if r.marker is None or any(r.marker.evaluate({"extra": extra}) for extra in wanted)]
    return sorted(found), sorted(missing)


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def licence_of(package: str) -> Licence:
    about = metadata.metadata(package)
    classifiers = [
        value.split(" :: ")[-1] for value in about.get_all("Classifier") or [] if value.startswith("License ::")
    ]
    free_text = (" ".join(about.get_all("License") or [])).strip()
    expression = (" ".join(about.get_all("License-Expression") or [])).strip()
    accepted = next((text for start, text in ACCEPTED.items() if package.startswith(start)), None)
    specific = [value for value in classifiers if value != "OSI Approved"]
    text = expression or accepted or (free_text if 0 < len(free_text) < 60 else "") or " AND ".join(specific)
    return Licence(package, about["Version"], text or "unknown", accepted is not None or is_permissive(text))


def is_permissive(text: str) -> bool:
    """Whether one side of each "or", and all sides of each "and", are permissive."""
    text = text.strip()
    while text.startswith("(") and text.endswith(")") and text[1:-1].count("(") == text[1:-1].count(")"):
        text = text[1:-1]
    for word, decide in ((r"\s+OR\s+", any), (r"\s+AND\s+", all), (r"\s+WITH\s+", all)):
        sides = re.split(word, text, flags=re.IGNORECASE)
        if len(sides) > 1:
            return decide(is_permissive(side.strip("() ")) for side in sides)
    return PERMISSIVE.fullmatch(text) is not None


def table(extras: tuple[str, ...] = ()) -> list[Licence]:
    return [licence_of(name) for name in runtime_packages(extras)[0]]


def main() -> None:
    rows = table(EXTRAS)
    print("| package | version | licence |\n|---|---|---|")
    for row in rows:
        print(f"| {row.package} | {row.version} | {row.text}{'' if row.is_permissive else ' (NOT PERMISSIVE)'} |")
    missing = runtime_packages(EXTRAS)[1]
    print(f"\nNot installed here, and not checked: {', '.join(missing) or 'none'}.")
    sys.exit(0 if all(row.is_permissive for row in rows) else 1)


if __name__ == "__main__":
    main()
