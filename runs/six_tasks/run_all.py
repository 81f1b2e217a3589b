"""Runs all jobs of the six tasks in parallel on one machine, most important first, within a time limit.

    python runs/six_tasks/run_all.py --data scratch/six --vectors scratch/six/static.vec.xz --out scratch/six_out \\
        --jobs 14 --minutes 9

One process per task computes the layers of its files once, while baselines already train. The same command resumes:
finished jobs are skipped, and jobs that the time limit stopped continue from their checkpoint. OUT/records and
OUT/records.tar.gz contain record.json and config.json of finished runs, for `elmo report`. OUT/logs has the output of
each process.

    --finetune-bilm          also fine-tunes the biLM on the text of each task and trains the task with it (Table 7)
    --variants all           also compares the settings in jobs.VARIANTS on dev
    --only 'runs/squad/*'    only these jobs and the jobs that they need
    --list                   prints the jobs with their estimated durations; --scores prints what is finished
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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from jobs import (  # noqa: E402  # found by the line above
    SECONDS,
    VARIANTS,
    Job,
    all_jobs,
    files_of,
    flat,
    longest_first,
    selected_setting,
    with_needed,
)
from scores import format_scores  # noqa: E402

from elmo.settings import format_assignment, parse_assignment, read_toml  # noqa: E402

ARCHIVED = ("record.json", "config.json")
POLL_SECONDS, REPORT_SECONDS = 0.2, 15.0
SAVING_SECONDS = 15.0  # that stopped jobs have to write their checkpoint
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
TRAINING_ENVIRONMENT = {  # not for the computation of layers
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",  # batches of many shapes: less memory lies idle
}
MPS_TEST = "import torch; x = torch.ones(512, 512, device='cuda'); print((x @ x).sum().item())"


@dataclass
class Driver:
    """Starts the jobs and tracks which ones are waiting, running, done and failed."""

    options: argparse.Namespace
    waiting: list[Job]
    environment: dict[str, str]
    start_time: float
    running: dict[str, tuple[Job, subprocess.Popen[bytes], float]] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    failed_once: list[Job] = field(default_factory=list)  # too many processes may have filled the memory: tried again
    tried_again: set[str] = field(default_factory=set)
    failed: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Starts and collects jobs until all are done or the time is over; then kills the running jobs."""
        out: Path = self.options.out
        for job in finished_runs(self.waiting, self.options):
            copy_record(job, out)
            self.done.add(job.name)
            self.waiting.remove(job)
        last_report = -REPORT_SECONDS
        try:
            while self.has_jobs and self.minutes < self.options.minutes + self.options.grace:
                self.collect()
                if self.minutes < self.options.minutes:
                    self.start()
                elif not self.running:
                    break
                if not (self.running or self.failed_once or any(self.is_ready(job) for job in self.waiting)):
                    break  # the remaining jobs need jobs that failed
                if 60 * self.minutes - last_report >= REPORT_SECONDS:
                    last_report = 60 * self.minutes
                    self.report()
                time.sleep(POLL_SECONDS)
        finally:
            self.stop()
            self.failed += [job.name for job in self.failed_once]
            self.report()
            archive(out, self.options.archive or out / "records.tar.gz")

    def stop(self) -> None:
        """Stops the running jobs: a signal lets them save their state; after SAVING_SECONDS they are killed."""
        for _, process, _ in self.running.values():
            process.terminate()
        end = time.monotonic() + SAVING_SECONDS
        for _, process, _ in self.running.values():
            try:
                process.wait(timeout=max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    @property
    def has_jobs(self) -> bool:
        """Whether a job is running or has not ended."""
        return bool(self.waiting or self.running or self.failed_once)

    @property
    def minutes(self) -> float:
        """Since the start."""
        return (time.monotonic() - self.start_time) / 60

    def is_ready(self, job: Job) -> bool:
        return self.done.issuperset(job.needs)

    def start(self) -> None:
        """Starts jobs that are ready, up to the maximum number of processes.

        A job that failed is tried once more, at the end and beside at most half as many processes.
        """
        ready = [job for job in self.waiting if self.is_ready(job)]
        if not ready and self.failed_once and len(self.running) <= self.options.jobs // 2:
            ready = [self.failed_once.pop(0)]
            self.waiting += ready
        for job in ready:
            if len(self.running) >= self.options.jobs:
                return
            log = self.options.out / "logs" / f"{job.name.replace('/', '.')}.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            with open(log, "ab") as file:
                command = command_of(job, self.options)
                environment = {**self.environment, **(TRAINING_ENVIRONMENT if job.kind == "train" else {})}
                process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=file, stderr=file)
            self.running[job.name] = (job, process, time.monotonic())
            self.waiting.remove(job)

    def collect(self) -> None:
        """Removes processes that have ended from the running ones."""
        for name, (job, process, start_time) in list(self.running.items()):
            if process.poll() is None:
                continue
            del self.running[name]
            seconds = time.monotonic() - start_time
            if process.returncode == 0:
                self.done.add(name)
                copy_record(job, self.options.out)
                print(
                    f"{self.minutes:5.2f} min  done {name} in {seconds:.0f} s{score_of(job, self.options.out)}",
                    flush=True,
                )
            elif name not in self.tried_again:
                self.tried_again.add(name)
                self.failed_once.append(job)
                print(f"{self.minutes:5.2f} min  failed {name} ({process.returncode}); tried again later", flush=True)
            else:
                self.failed.append(name)
                print(f"{self.minutes:5.2f} min  FAILED {name} ({process.returncode}); see OUT/logs", flush=True)

    def report(self) -> None:
        """Prints one line with the numbers of jobs and the names of the running ones."""
        names = " ".join(name.removeprefix("runs/") for name in sorted(self.running))
        counts = f"{len(self.done)} done, {len(self.running)} running, {len(self.waiting)} waiting"
        print(f"{self.minutes:5.2f} min  {counts}, {len(self.failed)} failed: {names}", flush=True)


def assignments_of(job: Job, options: argparse.Namespace) -> list[str]:
    """The settings and files of a job as section.key=value."""
    settings = {"train.keep_checkpoint": options.keep_checkpoints, **job.settings}
    if settings.get("elmo.mode") != "none":
        model = str(tuned_model(options.out, job.task)) if job.uses_tuned else options.model
        settings |= {"elmo.model": model, "elmo.cache": "disk", "elmo.cache_dir": str(options.out / "layers")}
    if job.kind == "train" and not job.name.startswith("tries/"):
        settings = {**selected_setting(job.task, options.out), **settings}
    files = files_of(options.data, job.task)
    assignments = [format_assignment(key, value) for key, value in settings.items()]
    assignments += [f"data.{split}={file}" for split, file in files.items() if split != "test" or job.test]
    if options.vectors is not None:
        assignments.append(f"words.vectors={options.vectors}")
    return assignments


def command_of(job: Job, options: argparse.Namespace) -> list[str]:
    """The command line of a job: `elmo task train`, or this script with --embed or --finetune."""
    flags = [argument for assignment in assignments_of(job, options) for argument in ("--set", assignment)]
    script = [sys.executable, str(Path(__file__).resolve())]
    if job.kind == "embed":
        return [*script, "--embed", job.task, *flags]
    if job.kind == "finetune":
        finetune_flags = [part for text in options.set_finetune for part in ("--set-finetune", text)]
        return [*script, "--finetune", job.task, "--out", str(options.out), *flags, *finetune_flags]
    config = Path(__file__).with_name(f"{job.task}.toml")
    folder = options.out / job.name
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
    """Fills the layer cache for the three files of a task."""
    from elmo.tasks.run import new_run

    new_run(task_settings(task, assignments), show=True)


def finetune(task: str, out: Path, assignments: list[str], finetune_assignments: list[str]) -> None:
    """Fine-tunes the biLM on the training text of a task."""
    from elmo.settings import parse_settings
    from elmo.tasks.finetune import FinetuneConfig, finetune_on_task

    values = {key: value for text in finetune_assignments for key, value in parse_assignment(text).items()}
    settings = parse_settings(FinetuneConfig, values, section="finetune")
    finetune_on_task(task_settings(task, assignments), tuned_model(out, task), settings, say=print)


def task_settings(task: str, assignments: list[str]) -> Any:
    """The settings of a run: the task's TOML file and assignments."""
    from elmo.tasks.config import make_config
    from elmo.tasks.task import load_task

    toml = read_toml(Path(__file__).with_name(f"{task}.toml"))
    return make_config(load_task(task), toml, *map(parse_assignment, assignments))


def tuned_model(out: Path, task: str) -> Path:
    """The folder of the biLM that is fine-tuned on the text of the task."""
    return out / "bilms" / task / "bilm"


def is_done(job: Job, out: Path) -> bool:
    """Whether the result of a job exists. Embedding jobs have none; with a filled cache they are quick."""
    if job.kind == "finetune":
        return (tuned_model(out, job.task) / "manifest.json").exists()
    return job.kind == "train" and (out / job.name / "record.json").exists()


def finished_runs(jobs: Sequence[Job], options: argparse.Namespace) -> list[Job]:
    """The runs that need not be started again; exits if one of them had other settings, files or another biLM.

    A finished fine-tuning job is started again, because it compares itself with what it finds, and ends at once.
    """
    from elmo.errors import ElmoError
    from elmo.tasks.checks import check_done

    identities: dict[str, str] = {}
    finished = []
    for job in jobs:
        if job.kind == "train" and is_done(job, options.out):
            settings = task_settings(job.task, assignments_of(job, options))
            try:
                record = check_done(options.out / job.name, settings, identities)
            except ElmoError as error:
                raise SystemExit(str(error)) from error
            if record is not None:  # not a run that gets more epochs now
                finished.append(job)
    return finished


def copy_record(job: Job, out: Path) -> None:
    """Copies the small files of a finished run to OUT/records, for the report; only for jobs below runs/."""
    if not job.name.startswith("runs/"):
        return
    target = out / "records" / job.name.removeprefix("runs/")
    target.mkdir(parents=True, exist_ok=True)
    for name in ARCHIVED:
        if (out / job.name / name).exists():  # a record that was copied from elsewhere may have no config
            shutil.copy(out / job.name / name, target / name)


def score_of(job: Job, out: Path) -> str:
    """The dev score and speed of a finished run, for the log."""
    if job.kind != "train":
        return ""
    record = json.loads((out / job.name / "record.json").read_text(encoding="utf-8"))
    milliseconds = 1000 * record["seconds"]["training"] / record["updates"]
    return f": dev {record['best']['score']:.2f}, {record['updates']:,} updates, {milliseconds:.1f} ms each"


def archive(out: Path, path: Path) -> None:
    """Writes the records of all finished runs, including those below tries/ and variants/, and the logs to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    with tarfile.open(partial, "w:gz") as tar:
        for folder in ("records", "tries", "variants", "logs"):
            for file in sorted((out / folder).rglob("*")) if (out / folder).exists() else ():
                if file.is_file() and (file.name in ARCHIVED or file.suffix == ".log"):
                    tar.add(file, arcname=str(file.relative_to(out)))
    partial.replace(path)


@contextlib.contextmanager
def shared_gpu(mode: str) -> Iterator[dict[str, str]]:
    """Starts CUDA's multi-process service if it works; without it, processes do not run on the GPU at the same time.

    Yields the environment variables of its clients.
    """
    control = shutil.which("nvidia-cuda-mps-control")
    if mode == "off" or control is None:
        yield {}
        return
    folder = tempfile.mkdtemp(prefix="mps-")  # a short path, because it contains sockets
    variables = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
    environment = {**os.environ, **variables}
    try:
        works = start_service(control, environment)
        print(f"multi-process service: {'on' if works else 'does not work here, off'}", flush=True)
        if not works:
            stop_service(control, environment)
        yield variables if works else {}
    finally:
        stop_service(control, environment)


def start_service(control: str, environment: Mapping[str, str]) -> bool:
    """Starts the multi-process service; returns whether two processes can use it at the same time."""
    try:
        subprocess.run([control, "-d"], env=environment, check=True, timeout=30)
        tests = [subprocess.Popen([sys.executable, "-c", MPS_TEST], env=environment) for _ in range(2)]
        return [process.wait(timeout=60) for process in tests] == [0, 0]
    except (OSError, subprocess.SubprocessError) as error:
        print(f"multi-process service: {error}", flush=True)
        return False


def stop_service(control: str, environment: Mapping[str, str]) -> None:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run([control], input=b"quit\n", env=environment, capture_output=True, timeout=20)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--embed", metavar="TASK", help="fill the layer cache of one task and exit")
    parser.add_argument("--data", type=Path, help="folder that prepare.py has written")
    parser.add_argument("--vectors", type=Path, help="static word vectors, for runs with and without ELMo")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--model", default="default", help="the biLM")
    parser.add_argument("--tasks", default=",".join(SECONDS), help="names of tasks, separated by commas")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=14, help="maximum number of parallel processes")
    parser.add_argument("--minutes", type=float, default=9.0, help="time after which no process is started")
    parser.add_argument("--grace", type=float, default=0.5, help="further minutes after which running jobs are killed")
    parser.add_argument("--priority", type=int, default=6, help="skip jobs with a larger number; -1: only embed")
    parser.add_argument("--longest-first", action="store_true", help="if all jobs will be finished: least time in all")
    parser.add_argument("--only", metavar="GLOB", help="only jobs with such a name, and the jobs that they need")
    parser.add_argument("--finetune-bilm", action="store_true", help="also train with a biLM tuned on the task's text")
    parser.add_argument("--variants", default="", help="also compare these settings on dev: names with commas, or all")
    parser.add_argument("--keep-checkpoints", action="store_true", help="keep the last checkpoint of finished runs")
    parser.add_argument("--set-finetune", action="append", default=[], help="key=value of the fine-tuning: lr=1e-3")
    parser.add_argument("--finetune", metavar="TASK", help="fine-tune the biLM on the text of one task and exit")
    parser.add_argument("--scores", action="store_true", help="print the dev scores of all finished runs and exit")
    parser.add_argument("--mps", choices=("auto", "off"), default="auto")
    parser.add_argument("--archive", type=Path, help="archive of the records (default OUT/records.tar.gz)")
    parser.add_argument("--set", action="append", default=[], help="section.key=value for all runs")
    parser.add_argument("--list", action="store_true", help="print the jobs in their order and exit")
    return parser.parse_args()


def main() -> None:
    start_time, options = time.monotonic(), parse()
    if options.embed:
        embed(options.embed, options.set)
        return
    if options.finetune:
        finetune(options.finetune, options.out, options.set, options.set_finetune)
        return
    if options.scores:
        if options.out is None:
            raise SystemExit("--scores needs --out FOLDER.")
        print(format_scores(options.out), end="")
        return
    jobs = chosen_jobs(options)
    if options.list:
        list_jobs(jobs, options)
        return
    if options.data is None or options.out is None:
        raise SystemExit("run_all.py needs --data FOLDER and --out FOLDER.")
    options.out, options.data = relative_to_root(options.out), relative_to_root(options.data)
    options.archive = options.archive.resolve() if options.archive else None
    options.vectors = relative_to_root(options.vectors) if options.vectors else None
    os.chdir(ROOT)
    options.out.mkdir(parents=True, exist_ok=True)
    with shared_gpu(options.mps) as variables:
        driver = Driver(options, jobs, {**os.environ, **ENVIRONMENT, **variables}, start_time)
        driver.run()
    if driver.failed:
        raise SystemExit(f"{len(driver.failed)} jobs failed: {', '.join(driver.failed)}")


def chosen_jobs(options: argparse.Namespace) -> list[Job]:
    """The jobs that the options choose, in their order."""
    overrides = {key: value for text in options.set for key, value in flat(parse_assignment(text)).items()}
    variants = list(VARIANTS) if options.variants == "all" else [name for name in options.variants.split(",") if name]
    if unknown := sorted(set(variants) - set(VARIANTS)):
        raise SystemExit(f"There is no variant {unknown[0]!r}. Known: {', '.join(VARIANTS)}.")
    tasks = options.tasks.split(",")
    if unknown := sorted(set(tasks) - set(SECONDS)):
        raise SystemExit(f"There is no task {unknown[0]!r}. Known: {', '.join(SECONDS)}.")
    jobs = all_jobs(tasks, options.seeds, overrides, finetunes=options.finetune_bilm, variants=variants)
    jobs = [job for job in jobs if job.priority <= options.priority]
    if options.only:
        jobs = with_needed(jobs, options.only)
        if not jobs:
            raise SystemExit(f"No job has a name like {options.only!r}; --list prints the names.")
    return longest_first(jobs) if options.longest_first else jobs


def list_jobs(jobs: list[Job], options: argparse.Namespace) -> None:
    """Prints the jobs that are not finished, with their estimated duration and share of the GPU's time."""
    out = options.out
    waiting = [job for job in jobs if out is None or not is_done(job, out)]
    for job in waiting:
        minutes = job.seconds / 60
        print(f"{job.priority:2} {minutes:5.1f} min, {minutes / options.jobs:5.2f} of the GPU  {job.name}")
    total = sum(job.seconds for job in waiting) / 60
    print(
        f"{len(waiting)} of {len(jobs)} jobs are not finished: about {total / options.jobs:.0f} minutes of one GPU "
        f"with {options.jobs} processes",
        file=sys.stderr,
    )


def relative_to_root(path: Path) -> Path:
    """The path relative to the project's folder, if it is inside, so that records contain no paths of one machine."""
    absolute = path.resolve()
    return absolute.relative_to(ROOT) if absolute.is_relative_to(ROOT) else absolute


if __name__ == "__main__":
    main()
