"""All runs of the six tasks side by side on one machine, most important first, until the time is over.

    python runs/six_tasks/run_all.py --data scratch/six --vectors scratch/six/static.vec.xz --out scratch/six_out \\
        --jobs 14 --minutes 9

Layers of each file are computed once (a process a task) while baselines already train. Run again, it goes on: what is
done is skipped, what was killed continues from its checkpoint. OUT/records and OUT/records.tar.gz hold record.json and
config.json of finished runs, for `elmo report`. OUT/logs has what each process said.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from jobs import SECONDS, Job, all_jobs, chosen, files_of  # noqa: E402  # found by the line above

from elmo.settings import parse_assignment, read_toml  # noqa: E402

KEPT = ("record.json", "config.json")
TICK, SAY_EVERY = 0.2, 15.0  # seconds
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
TRAINING = {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}  # not for the biLM's own pass
MPS_TRY = "import torch; x = torch.ones(512, 512, device='cuda'); print((x @ x).sum().item())"


@dataclass
class Driver:
    """What is waiting, running and done."""

    asked: argparse.Namespace
    waiting: list[Job]
    environment: dict[str, str]
    begun: float
    running: dict[str, tuple[Job, subprocess.Popen[bytes], float]] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    failed: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Starts and collects until nothing is left or the time is over; then kills what still runs."""
        out: Path = self.asked.out
        for job in [job for job in self.waiting if is_done(job, out)]:
            keep(job, out)
            self.done.add(job.name)
            self.waiting.remove(job)
        said = -SAY_EVERY
        try:
            while (self.waiting or self.running) and self.minutes < self.asked.minutes + self.asked.grace:
                self.collect()
                if self.minutes < self.asked.minutes:
                    self.start()
                elif not self.running:
                    break
                if not self.running and not any(self.is_ready(job) for job in self.waiting):
                    break  # what is left needs what failed
                if 60 * self.minutes - said >= SAY_EVERY:
                    said = 60 * self.minutes
                    self.say()
                time.sleep(TICK)
        finally:
            for _, process, _ in self.running.values():
                process.kill()
                process.wait()
            self.say()
            archive(out, self.asked.archive or out / "records.tar.gz")

    @property
    def minutes(self) -> float:
        return (time.monotonic() - self.begun) / 60

    def is_ready(self, job: Job) -> bool:
        return self.done.issuperset(job.needs)

    def start(self) -> None:
        for job in [job for job in self.waiting if self.is_ready(job)]:
            if len(self.running) >= self.asked.jobs:
                return
            log = self.asked.out / "logs" / f"{job.name.replace('/', '.')}.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            with open(log, "ab") as file:
                command = command_of(job, self.asked)
                environment = {**self.environment, **({} if job.embeds else TRAINING)}
                process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=file, stderr=file)
            self.running[job.name] = (job, process, time.monotonic())
            self.waiting.remove(job)

    def collect(self) -> None:
        for name, (job, process, begun) in list(self.running.items()):
            if process.poll() is None:
                continue
            del self.running[name]
            seconds = time.monotonic() - begun
            if process.returncode == 0:
                self.done.add(name)
                keep(job, self.asked.out)
                print(
                    f"{self.minutes:5.2f} min  done {name} in {seconds:.0f} s{score_of(job, self.asked.out)}",
                    flush=True,
                )
            else:
                self.failed.append(name)
                print(f"{self.minutes:5.2f} min  FAILED {name} ({process.returncode}); see OUT/logs", flush=True)

    def say(self) -> None:
        names = " ".join(name.removeprefix("runs/") for name in sorted(self.running))
        counts = f"{len(self.done)} done, {len(self.running)} running, {len(self.waiting)} waiting"
        print(f"{self.minutes:5.2f} min  {counts}, {len(self.failed)} failed: {names}", flush=True)


def command_of(job: Job, asked: argparse.Namespace) -> list[str]:
    """`elmo task train`, or for an embedding pass this file itself."""
    settings = {**job.settings}
    if settings.get("elmo.mode") != "none":
        settings |= {"elmo.model": asked.model, "elmo.cache": "disk", "elmo.cache_dir": str(asked.out / "layers")}
    if not job.embeds and job.test:
        settings = {**chosen(job.task, asked.out), **settings}
    files = files_of(asked.data, job.task)
    pairs = [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in settings.items()]
    flags = [part for pair in pairs for part in ("--set", pair)]
    for split, file in files.items():
        if split != "test" or job.test or job.embeds:
            flags += ["--set", f"data.{split}={file}"]
    if asked.vectors is not None:
        flags += ["--set", f"words.vectors={asked.vectors}"]
    if job.embeds:
        return [sys.executable, str(Path(__file__).resolve()), "--embed", job.task, *flags]
    config = Path(__file__).with_name(f"{job.task}.toml")
    folder = asked.out / job.name
    return [
        sys.executable,
        "-m",
        "elmo",
        "task",
        "train",
        job.task,
        "--config",
        str(config),
        "--out",
        str(folder),
        *flags,
    ]


def embed(task: str, assignments: list[str]) -> None:
    """Fills the layer cache with a task's three files."""
    from elmo.tasks.config import make_config
    from elmo.tasks.run import new_run
    from elmo.tasks.task import load_task

    toml = read_toml(Path(__file__).with_name(f"{task}.toml"))
    new_run(make_config(load_task(task), toml, *map(parse_assignment, assignments)), show=True)


def is_done(job: Job, out: Path) -> bool:
    """An embedding pass is asked for anew each time: it finds its files and is quick."""
    return not job.embeds and (out / job.name / "record.json").exists()


def keep(job: Job, out: Path) -> None:
    """The small files of a finished run, for the report; runs that only chose a setting are left where they are."""
    if not job.name.startswith("runs/"):
        return
    target = out / "records" / job.name.removeprefix("runs/")
    target.mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        if (out / job.name / name).exists():  # a record brought from elsewhere may come alone
            shutil.copy(out / job.name / name, target / name)


def score_of(job: Job, out: Path) -> str:
    if job.embeds:
        return ""
    record = json.loads((out / job.name / "record.json").read_text(encoding="utf-8"))
    each = 1000 * record["seconds"]["training"] / record["updates"]
    return f": dev {record['best']['score']:.2f}, {record['updates']:,} updates, {each:.1f} ms each"


def archive(out: Path, path: Path) -> None:
    """Records of finished runs, and of the runs that chose settings, as one file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    with tarfile.open(partial, "w:gz") as tar:
        for folder in ("records", "tries", "logs"):
            for file in sorted((out / folder).rglob("*")) if (out / folder).exists() else ():
                if file.is_file() and (file.name in KEPT or file.suffix == ".log"):
                    tar.add(file, arcname=str(file.relative_to(out)))
    partial.replace(path)


@contextlib.contextmanager
def shared_gpu(how: str) -> Iterator[dict[str, str]]:
    """CUDA's multi-process service, where there is one that works: without it processes take turns on the GPU."""
    control = shutil.which("nvidia-cuda-mps-control")
    if how == "off" or control is None:
        yield {}
        return
    folder = tempfile.mkdtemp(prefix="mps-")  # a short path: it holds sockets
    places = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
    environment = {**os.environ, **places}
    try:
        works = works_with(control, environment)
        print(f"multi-process service: {'on' if works else 'does not work here, off'}", flush=True)
        if not works:
            stop(control, environment)
        yield places if works else {}
    finally:
        stop(control, environment)


def works_with(control: str, environment: Mapping[str, str]) -> bool:
    """Two processes at once can compute through it."""
    try:
        subprocess.run([control, "-d"], env=environment, check=True, timeout=30)
        tries = [subprocess.Popen([sys.executable, "-c", MPS_TRY], env=environment) for _ in range(2)]
        return [process.wait(timeout=60) for process in tries] == [0, 0]
    except (OSError, subprocess.SubprocessError) as error:
        print(f"multi-process service: {error}", flush=True)
        return False


def stop(control: str, environment: Mapping[str, str]) -> None:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run([control], input=b"quit\n", env=environment, capture_output=True, timeout=20)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--embed", metavar="TASK", help="fill the layer cache of one task and end")
    parser.add_argument("--data", type=Path, help="made by prepare.py")
    parser.add_argument("--vectors", type=Path, help="static word vectors, for the baseline and +ELMo alike")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--model", default="default", help="the biLM")
    parser.add_argument("--tasks", default=",".join(SECONDS), help="names with commas")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=14, help="processes side by side")
    parser.add_argument("--minutes", type=float, default=9.0, help="after these no process is started")
    parser.add_argument("--grace", type=float, default=0.5, help="minutes more before what runs is killed")
    parser.add_argument("--priority", type=int, default=4, help="leave out what is less important; -1: embed only")
    parser.add_argument("--mps", choices=("auto", "off"), default="auto")
    parser.add_argument("--archive", type=Path, help="where the records go as one file (OUT/records.tar.gz)")
    parser.add_argument("--set", action="append", default=[], help="section.key=value for every run")
    parser.add_argument("--list", action="store_true", help="print the jobs in their order and end")
    return parser.parse_args()


def main() -> None:
    begun, asked = time.monotonic(), parse()
    if asked.embed:
        embed(asked.embed, asked.set)
        return
    over: dict[str, Any] = dict(_assigned(text) for text in asked.set)
    jobs = [job for job in all_jobs(asked.tasks.split(","), asked.seeds, over) if job.priority <= asked.priority]
    if asked.list:
        for job in jobs:
            print(f"{job.priority} {job.seconds:5.0f} s  {job.name}")
        return
    if asked.data is None or asked.out is None:
        raise SystemExit("run_all.py needs --data FOLDER and --out FOLDER.")
    asked.out, asked.data = near(asked.out), near(asked.data)
    asked.archive = asked.archive.resolve() if asked.archive else None
    asked.vectors = near(asked.vectors) if asked.vectors else None
    os.chdir(ROOT)
    asked.out.mkdir(parents=True, exist_ok=True)
    with shared_gpu(asked.mps) as places:
        driver = Driver(asked, jobs, {**os.environ, **ENVIRONMENT, **places}, begun)
        driver.run()
    if driver.failed:
        raise SystemExit(f"{len(driver.failed)} jobs failed: {', '.join(driver.failed)}")


def near(path: Path) -> Path:
    """As seen from the project's folder, where processes are started: records shall not name a machine's own paths."""
    whole = path.resolve()
    return whole.relative_to(ROOT) if whole.is_relative_to(ROOT) else whole


def _assigned(text: str) -> tuple[str, Any]:
    key, _, value = text.partition("=")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


if __name__ == "__main__":
    main()
