"""`elmo doctor`: prints versions and devices, and compares this machine's vectors with the reference vectors."""

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
        str, typer.Option(help="Device on which the reference vectors are recomputed: auto, cpu, cuda, mps.")
    ] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Print versions, threads, devices and free disk space, and recompute the reference vectors on this machine.

    Bug reports should contain this output. The line `golden` compares the vectors of this machine with those of
    allenai/bilm-tf and allenai/allennlp; a difference above the limit is marked WRONG and gives exit code 1.
    """
    facts = machine_facts()
    if "torch_error" not in facts:
        facts["golden"] = golden_facts(device)
    if as_json:
        typer.echo(json.dumps(facts))
    else:
        for name, value in facts.items():
            text = ", ".join(value) if isinstance(value, list) else value
            typer.echo(f"{name:<16} {text}")
    if "torch_error" in facts or any(line.startswith("WRONG") for line in facts["golden"]):
        raise typer.Exit(1)


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
    """Facts about this machine, name -> number, string or list of strings, in display order."""
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
    # a container or taskset may restrict the process to fewer cores than the machine has; some systems cannot tell
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
