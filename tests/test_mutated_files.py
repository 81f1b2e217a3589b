"""Every kind of file that a command reads, with random changes: an answer or one clear error, never a bug report.

A few mutants of each kind run in the fast suite, a few hundred in the slow one.
"""

from __future__ import annotations

import hashlib
import json
import random
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from in_process_cli import run_in_process
from mutations import mutants, mutate_bytes
from scale import scaled

sys.path.insert(0, str(Path(__file__).parent / "report"))
sys.path.insert(0, str(Path(__file__).parent / "tasks"))
sys.path.insert(0, str(Path(__file__).parent / "probes"))
import sample_records as samples
import small_runs
import test_wsd as senses
import tiny_run
import tiny_tasks

from elmo.tasks.record import command_of
from elmo.tasks.task import load_task
from elmo.tasks.train import train

FEW, MANY = 6, 300
RECORDS: dict[str, Any] = {
    "task": samples.task_record(),
    **{name: samples.probe_record(name) for name in ("pos", "ner", "wsd", "wic", "similarity")},
    "training": samples.training_report(),
    "perplexity": samples.PERPLEXITY,
    "finetuning": samples.FINETUNED,
    "demo": samples.DEMO,
    "neighbours": samples.SIMILAR,
    "geometry": samples.GEOMETRY,
}


@dataclass(frozen=True)
class Case:
    """A valid file and a command that reads it."""

    path: Path
    command: tuple[str, ...]
    lines: bool = False  # one JSON value per line
    is_text: bool = False  # not JSON: its bytes are changed
    restore: Callable[[], None] = lambda: None  # before each mutant, because the command changes its files
    finish: Callable[[Path], None] = lambda path: None  # after each mutant was written


def parse(case: Case) -> Any:
    text = case.path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines() if line] if case.lines else json.loads(text)


def run_mutants(case: Case, count: int, capsys: Any) -> None:
    """Runs the command on each mutant; the exit code must be 0, 1 or 2, with one error or none."""
    for data in mutated_data(case, count):
        case.restore()
        case.path.write_bytes(data)
        case.finish(case.path)
        text = data.decode("utf-8", "replace")
        done = run_in_process(capsys, *case.command)
        errors = [line for line in done.stderr.splitlines() if line.startswith(("elmo: ", "Usage:"))]
        shown = f"{text[:2000]}\n{done.stderr[-2000:]}"
        assert "internal error" not in done.stderr, shown
        assert "Traceback" not in done.stderr, shown
        assert done.returncode in (0, 1, 2), shown
        assert len(errors) == (done.returncode != 0), shown


def mutated_data(case: Case, count: int) -> Iterator[bytes]:
    if case.is_text:
        original = case.path.read_bytes()
        yield from (mutate_bytes(original, random.Random(seed)) for seed in range(count))
        return
    for mutant in mutants(parse(case), count):
        items = mutant if case.lines and isinstance(mutant, list) else [mutant]
        yield "\n".join(json.dumps(item) for item in items).encode()


def make_report(folder: Path, name: str, capsys: Any) -> Case:
    for number, record in enumerate((samples.task_record(seed=1), samples.task_record(elmo=False))):
        (folder / f"other{number}.json").write_text(json.dumps(record), encoding="utf-8")
    path = folder / ("course.json" if name == "course" else "record.json")
    values = samples.COURSE if name == "course" else RECORDS[name]
    path.write_text(json.dumps(values), encoding="utf-8")
    (folder / "report.json").write_text(json.dumps(samples.training_report()), encoding="utf-8")
    return Case(path, ("report", str(folder), "-o", str(folder.parent / "page")))


def make_run(folder: Path, name: str, capsys: Any) -> Case:
    config = tiny_tasks.settings(folder, "ner", {"elmo": {"mode": "frozen"}, "train": {"epochs": 1}})
    train(config, folder / "run")
    text = "Ada lived in London ."
    if name == "table":
        return Case(folder / "run" / "record.json", ("task", "table", str(folder / "run")))
    return Case(folder / "run" / f"{name}.json", ("task", "predict", str(folder / "run"), text, "--device", "cpu"))


def make_task_checkpoint(folder: Path, name: str, capsys: Any) -> Case:
    config = tiny_tasks.settings(folder, "ner", {"train": {"epochs": 2}})

    def stop(line: str) -> None:
        if line.startswith("epoch 2"):
            raise InterruptedError

    with pytest.raises(InterruptedError):
        train(config, folder / "run", say=stop)
    shutil.copytree(folder / "run", folder / "copy")

    def restore() -> None:
        shutil.rmtree(folder / "run")
        shutil.copytree(folder / "copy", folder / "run")

    (path,) = (folder / "run" / "checkpoint").glob("*/manifest.json")
    command = shlex.split(command_of(load_task("ner"), config))[1:]
    return Case(path, (*command, "--out", str(folder / "run")), restore=restore)


def make_examples(folder: Path, name: str, capsys: Any) -> Case:
    config = small_runs.small_config(folder, name, train={"epochs": 1, "device": "cpu"})
    train(config, folder / "run")
    path = Path(config.data.train)
    command = ("task", "evaluate", str(folder / "run"), str(path), "--device", "cpu")
    return Case(path, command, lines=name != "squad")


def make_prepared(folder: Path, name: str, capsys: Any) -> Case:
    text = folder / "text.txt"
    text.write_text("".join(f"the cat {i} sat on mat {i % 7} .\n" for i in range(100)), encoding="utf-8")
    command = ("prepare", str(text), "--out", str(folder / "prepared"), "--workers", "1")
    assert run_in_process(capsys, *command).returncode == 0
    return Case(folder / "prepared" / "manifest.json", command)


def make_model(folder: Path, name: str, capsys: Any) -> Case:
    model = folder / "model"
    form = "hdf5" if name == "options" else "elmo"
    assert run_in_process(capsys, "convert", "tiny-random", str(model), "--to", form).returncode == 0

    def list_config(path: Path) -> None:
        data = path.read_bytes()
        manifest = json.loads((model / "manifest.json").read_text(encoding="utf-8"))
        manifest["files"]["config.json"] = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
        (model / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")

    if name == "options":
        sentences = folder / "sentences.txt"
        sentences.write_text("A cat sat .\n", encoding="utf-8")
        command = ("embed", str(sentences), str(folder / "out.jsonl"), "--overwrite", "--device", "cpu")
        return Case(model / "options.json", (*command, "--model", str(model)))
    finish = list_config if name == "config" else lambda path: None
    return Case(model / f"{name}.json", ("info", str(model)), finish=finish)


def make_parts(folder: Path, name: str, capsys: Any) -> Case:
    source, out, parts = folder / "in.txt", folder / "out.jsonl", folder / "out.jsonl.parts"
    source.write_text("A cat sat .\nIt slept .\n" * 4, encoding="utf-8")
    command = ("embed", str(source), str(out), "--model", "tiny-random", "--device", "cpu", "--block-tokens", "20")
    for shard in ("1/2", "2/2"):
        assert run_in_process(capsys, *command, "--shard", shard).returncode == 0
    shutil.copytree(parts, folder / "copy")

    def restore() -> None:
        out.unlink(missing_ok=True)
        shutil.rmtree(parts, ignore_errors=True)
        shutil.copytree(folder / "copy", parts)

    used = (*command, "--resume") if name == "resume" else ("merge", str(out))
    return Case(parts / ("end.json" if name == "end" else "plan.json"), used, restore=restore)


def make_pretraining(folder: Path, name: str, capsys: Any) -> Case:
    """A run of three steps that the command continues: the manifest of its checkpoint, or its log."""
    text, out = tiny_run.write_text(folder / "text.txt", 60), folder / "run"
    steps = ("--set", "train.checkpoint_every=1", "--set", "train.validate_every=0", "--max-steps")
    assert run_in_process(capsys, *tiny_run.command(text, out, *steps, "2")[3:]).returncode == 0
    command = tiny_run.command(text, out, *steps, "3")[3:]
    shutil.copytree(out, folder / "copy")

    def restore() -> None:
        shutil.rmtree(out)
        shutil.copytree(folder / "copy", out)

    newest = max((out / "checkpoints").glob("step-*"))
    path = newest / "manifest.json" if name == "manifest" else out / "metrics.jsonl"
    return Case(path, tuple(command), lines=name == "metrics", restore=restore)


def make_finetuning(folder: Path, name: str, capsys: Any) -> Case:
    """before.json, which a fine-tuning that is continued reads."""
    text, out = tiny_run.write_text(folder / "text.txt", 60), folder / "run"
    command = tiny_run.command(text, folder / "pretrained", "--max-steps", "2")[3:]
    assert run_in_process(capsys, *command).returncode == 0
    tuning = ["finetune", str(folder / "pretrained"), str(text), "--out", str(out), "--heldout", "0.1", "--rows", "4"]
    tuning += ["--device", "cpu", "--workers", "1", "--set", "train.steps=5", "--max-steps"]
    assert run_in_process(capsys, *tuning, "1").returncode == 0
    shutil.copytree(out, folder / "copy")

    def restore() -> None:
        shutil.rmtree(out)
        shutil.copytree(folder / "copy", out)

    return Case(out / "before.json", (*tuning, "1"), restore=restore)


def make_probe(folder: Path, name: str, capsys: Any) -> Case:
    """The data files of the probes."""
    options = ("--model", "tiny-random", "--device", "cpu")
    if name in ("pos", "ner"):
        row = "1\tDogs\tdog\tNOUN\tNNS\t_\n2\tbark\tbark\tVERB\tVBP\t_\n\n"
        rows, suffix = (row, "conllu") if name == "pos" else ("Ada NNP B-PER\nleft VBD O\n\n", "txt")
        for split in ("train", "dev", "test"):
            (folder / f"x-{split}.{suffix}").write_text(rows * 8, encoding="utf-8")
        paths = [str(folder / f"x-{split}.{suffix}") for split in ("train", "dev", "test")]
        return Case(Path(paths[0]), ("probe", name, *paths, "--epochs", "1", *options), is_text=True)
    if name == "similarity":
        path = folder / "pairs.tsv"
        line = "The <b>bank</b> of a river .\tA <b>shore</b> .\t{}\n"
        path.write_text("".join(line.format(score) for score in (8.5, 1.0, 5.0)), encoding="utf-8")
        return Case(path, ("probe", name, str(path), *options), is_text=True)
    if name.startswith("wic"):
        for split in ("train", "dev"):
            lines = ["bank\tN\t1-1\triver bank\triver bank water", "bank\tN\t1-1\triver bank\tmoney bank"] * 3
            (folder / f"{split}.data.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
            (folder / f"{split}.gold.txt").write_text("T\nF\n" * 3, encoding="utf-8")
        return Case(folder / f"train.{name[4:]}.txt", ("probe", "wic", str(folder), *options), is_text=True)
    (folder / "index.sense").write_text(senses.WORDNET, encoding="utf-8")
    texts = [json.dumps({"id": str(n), "tokens": tokens}) for n, tokens in enumerate(senses.SEMCOR)]
    (folder / "semcor.jsonl").write_text("\n".join(texts) + "\n", encoding="utf-8")
    evaluation = folder / "Evaluation_Datasets" / "semeval2007"
    evaluation.mkdir(parents=True)
    (evaluation / "semeval2007.data.xml").write_text(senses.XML, encoding="utf-8")
    (evaluation / "semeval2007.gold.key.txt").write_text(senses.GOLD, encoding="utf-8")
    files = {
        "wsd index": folder / "index.sense",
        "wsd semcor": folder / "semcor.jsonl",
        "wsd xml": evaluation / "semeval2007.data.xml",
        "wsd gold": evaluation / "semeval2007.gold.key.txt",
    }
    return Case(files[name], ("probe", "wsd", str(folder), *options), name == "wsd semcor", name != "wsd semcor")


PROBE_FILES = (
    "pos", "ner", "similarity", "wic data", "wic gold", "wsd index", "wsd semcor", "wsd xml", "wsd gold",
)  # fmt: skip
MAKERS: dict[str, tuple[Callable[..., Case], tuple[str, ...]]] = {
    "report": (make_report, (*RECORDS, "course")),
    "run": (make_run, ("config", "words", "record", "table")),
    "checkpoint": (make_task_checkpoint, ("manifest",)),
    "examples": (make_examples, ("snli", "squad", "coref")),
    "prepared": (make_prepared, ("manifest",)),
    "model": (make_model, ("options", "config", "manifest")),
    "parts": (make_parts, ("end", "merge", "resume")),
    "pretraining": (make_pretraining, ("manifest", "metrics")),
    "finetuning": (make_finetuning, ("before",)),
    "probe": (make_probe, PROBE_FILES),
}


CASES = [pytest.param(kind, name, id=f"{kind}-{name}") for kind, (_, names) in MAKERS.items() for name in names]


def make_case(kind: str, name: str, folder: Path, capsys: Any) -> Case:
    folder.mkdir()
    return MAKERS[kind][0](folder, name, capsys)


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_few_mutated_files_get_an_answer_or_one_error(kind: str, name: str, tmp_path: Path, capsys: Any) -> None:
    run_mutants(make_case(kind, name, tmp_path / "files", capsys), FEW, capsys)


@pytest.mark.slow("mutants")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_many_mutated_files_get_an_answer_or_one_error(
    kind: str, name: str, tmp_path: Path, capsys: Any, record_property: Any
) -> None:
    count = scaled(MANY)
    run_mutants(make_case(kind, name, tmp_path / "files", capsys), count, capsys)
    record_property("mutants", count)
