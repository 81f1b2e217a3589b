"""`elmo doctor`: what a bug report needs about this machine."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer

from elmo import __version__
from elmo.kernels import api as kernels

EXAMPLE = "elmo doctor --json"
LIBRARIES = ("torch", "numpy", "h5py", "safetensors", "typer")


def run(
    device: Annotated[
        str, typer.Option(help="Replay the golden vectors on this device: auto, cpu, cuda, mps.")
    ] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
) -> None:
    """Show versions, threads, devices and free disk, and replay the references' golden vectors on this machine."""
    facts = machine_facts()
    if "torch_error" not in facts:
        facts["golden"] = golden_facts(device)
    if as_json:
        typer.echo(json.dumps(facts))
    else:
        for name, value in facts.items():
            shown = ", ".join(value) if isinstance(value, list) else value
            typer.echo(f"{name:<16} {shown}")
    if "torch_error" in facts or any(line.startswith("WRONG") for line in facts["golden"]):
        raise typer.Exit(1)


def golden_facts(device: str) -> list[str]:
    """One line for each golden model: how far from the published vectors this machine lands."""
    from elmo.devices import choose_device
    from elmo.embed.selftest import SENTENCES, replay

    lines = []
    for model in SENTENCES:
        found = replay(model, device=choose_device(device))
        lines.append(f"{'ok' if found.passed else 'WRONG'} {model} on {found.device} differs by {found.difference:.1e}")
    return lines


def machine_facts() -> dict[str, Any]:
    """Name -> number, string or list of strings, in the order they are shown."""
    facts: dict[str, Any] = {
        "elmo": __version__,
        "python": platform.python_version(),
        "python_path": sys.executable,
        "system": platform.platform(),
    }
    facts |= {library: _version(library) for library in LIBRARIES}
    facts["cores"] = _usable_cores()
    facts["devices"] = ["cpu"]
    facts["free_disk_gb"] = round(shutil.disk_usage(Path.cwd()).free / 1e9, 1)
    facts["omp_wait_policy"] = os.environ.get("OMP_WAIT_POLICY", "")
    try:
        import torch
    except (ImportError, OSError) as error:  # OSError: a shared library it needs is missing or damaged
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
    # a container or taskset may leave fewer cores than the machine has; not every system can tell
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
