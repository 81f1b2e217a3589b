"""`elmo doctor`: prints versions and devices, and compares this machine's vectors with the reference vectors."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import sys
from base64 import urlsafe_b64encode
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer

from elmo import __version__
from elmo.cli.options import Device

EXAMPLE = "elmo doctor --json"
LIBRARIES = ("torch", "numpy", "h5py", "safetensors", "typer")
DISTRIBUTION = "elmo-lm"
REPAIR = f"remove both (pip uninstall elmo {DISTRIBUTION}) and install {DISTRIBUTION} again, as its README says"


def run(
    device: Device = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Print versions, threads, devices and free disk space, and recompute the reference vectors on this machine.

    Bug reports should contain this output. The line `golden` compares the vectors of this machine with those of
    allenai/bilm-tf and allenai/allennlp; a difference above the limit is marked WRONG and gives exit code 1. So does
    another distribution that installs a package `elmo` too, such as elmo on PyPI, in the line `package`.
    """
    facts = machine_facts()
    if "torch_threads" in facts:
        facts["golden"] = golden_facts(device)
    if as_json:
        typer.echo(json.dumps(facts))
    else:
        for name, value in facts.items():
            text = ", ".join(value) if isinstance(value, list) else value
            typer.echo(f"{name:<16} {text}")
    if "golden" not in facts or any(line.startswith("WRONG") for line in facts["package"] + facts["golden"]):
        raise typer.Exit(1)


def package_facts(damaged: list[str]) -> list[str]:
    """The folder of the imported package, or one line per fault: a distribution that shares it, or damaged files."""
    others = sorted({name for name in metadata.packages_distributions().get("elmo", []) if name != DISTRIBUTION})
    lines = [
        f"WRONG {name} {_version(name)} in {_folder(name)} installs a package elmo too, "
        f"which replaces files of {DISTRIBUTION} or is imported instead of it; {REPAIR}"
        for name in others
    ]
    if damaged:
        lines.append(
            f"WRONG {len(damaged)} files of {DISTRIBUTION} are missing or changed ({damaged[0]}, ...); {REPAIR}"
        )
    return lines or [f"ok {Path(__file__).parent.parent}"]


def _folder(distribution: str) -> Path:
    return Path(str(metadata.distribution(distribution).locate_file(""))).resolve()


def damaged_files() -> list[str]:
    """The files of the installed package that are missing or whose checksum is wrong; none in a checkout."""
    try:
        files = metadata.files(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return []
    return [str(file) for file in files if file.parts[0] == "elmo" and not _is_intact(file)]


def _is_intact(file: metadata.PackagePath) -> bool:
    if file.hash is None:  # compiled Python
        return True
    try:
        data = Path(str(file.locate())).read_bytes()
    except OSError:
        return False
    digest = hashlib.new(file.hash.mode, data).digest()
    return urlsafe_b64encode(digest).rstrip(b"=").decode() == file.hash.value


def golden_facts(device: str) -> list[str]:
    """One line per reference model: the largest difference from the published vectors on this machine."""
    from elmo.devices import choose_device
    from elmo.embed.selftest import SENTENCES, replay

    lines = []
    for model in SENTENCES:
        result = replay(model, device=choose_device(device))
        verdict = "ok" if result.passed else "WRONG"
        lines.append(f"{verdict} {model} on {result.device} (largest difference {result.difference:.1e})")
    return lines


def machine_facts() -> dict[str, Any]:
    """Facts about this machine, name -> number, string or list of strings, in display order.

    If files of the package are damaged, those that need its other modules are left out.
    """
    damaged = damaged_files()
    facts: dict[str, Any] = {
        "elmo": __version__,
        "python": platform.python_version(),
        "python_path": sys.executable,
        "system": platform.platform(),
        "package": package_facts(damaged),
    }
    facts |= {library: _version(library) for library in LIBRARIES}
    facts["cores"] = _usable_cores()
    facts["devices"] = ["cpu"]
    facts["free_disk_gb"] = round(shutil.disk_usage(Path.cwd()).free / 1e9, 1)
    facts["omp_wait_policy"] = os.environ.get("OMP_WAIT_POLICY", "")
    if damaged:
        return facts
    from elmo.kernels import api as kernels

    try:
        import torch
    except (ImportError, OSError) as error:  # OSError: a shared library that torch needs is missing or damaged
        facts["torch_error"] = str(error).splitlines()[0]
        return facts
    facts["torch_threads"] = torch.get_num_threads()
    facts |= kernels.describe()
    facts["devices"] += [f"cuda:{i} {torch.cuda.get_device_name(i)}" for i in range(torch.cuda.device_count())]
    facts["devices"] += ["mps"] if torch.backends.mps.is_available() else []
    return facts


def _version(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return "not installed"


def _usable_cores() -> int:
    # as elmo.worker_pool.usable_cores, which a damaged package may lack
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
