"""Peak memory of one path, in a process of its own: measured beside others, it would be theirs too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

import elmo
from elmo.bench.variants import DTYPES, random_subject, variants_of
from elmo.errors import ElmoError

_CODE = "from elmo.bench.memory import child; child()"


def peak_memory(size: str, path: str, sentences: Sequence[Sequence[str]], num_threads: int) -> int | None:
    """MB at most resident while `path` embeds the sentences with a preset; None where the system does not tell."""
    if not Path("/proc/self/status").exists():
        return None
    asked = json.dumps({"size": size, "path": path, "sentences": list(sentences), "threads": num_threads})
    root = str(Path(elmo.__file__).resolve().parent.parent)
    places = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-c", _CODE],
        input=asked,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
    )
    if done.returncode:
        raise ElmoError(f"{path} failed in a process of its own: {done.stderr.strip().splitlines()[-1]}")
    return int(done.stdout)


def child() -> None:
    """What that process does."""
    asked = json.load(sys.stdin)
    torch.set_num_threads(asked["threads"])
    path = variants_of(random_subject(asked["size"]), DTYPES)[asked["path"]]
    path.embed(asked["sentences"])
    # not getrusage: it counts the parent this process was forked from
    status = Path("/proc/self/status").read_text()
    peak = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    sys.stdout.write(str(int(peak) // 1024))
