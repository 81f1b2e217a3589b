"""Peak memory of one variant, measured in a process of its own so that other variants do not count."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

import elmo
from elmo.bench.variants import DTYPES, make_variants, random_subject
from elmo.errors import ElmoError

_CODE = "from elmo.bench.memory import child; child()"


def peak_memory(size: str, variant: str, sentences: Sequence[Sequence[str]], num_threads: int) -> int | None:
    """Peak resident memory in MB while a variant embeds the sentences with a preset; None without /proc."""
    if not Path("/proc/self/status").exists():
        return None
    request = json.dumps({"size": size, "variant": variant, "sentences": list(sentences), "threads": num_threads})
    root = str(Path(elmo.__file__).resolve().parent.parent)
    python_path = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.run(
        [sys.executable, "-c", _CODE],
        input=request,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(python_path)},
    )
    if process.returncode:
        raise ElmoError(f"{variant} failed in a process of its own: {process.stderr.strip().splitlines()[-1]}")
    return int(process.stdout)


def child() -> None:
    """The entry point of the child process: reads the request from stdin and writes the peak in MB to stdout."""
    request = json.load(sys.stdin)
    torch.set_num_threads(request["threads"])
    variant = make_variants(random_subject(request["size"]), DTYPES)[request["variant"]]
    variant.embed(request["sentences"])
    # not getrusage, because its peak includes the memory of the parent process before exec
    status = Path("/proc/self/status").read_text()
    peak = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    sys.stdout.write(str(int(peak) // 1024))
