"""Parts to the one file that was asked for: the last step of a run, or `elmo merge` after shards. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from elmo.embed.dump.estimate import check_room
from elmo.embed.dump.part_files import Parts
from elmo.embed.dump.part_folder import PartsFolder
from elmo.embed.dump.target import Target, check_place, exists_error
from elmo.embed.dump.write_jsonl import write_jsonl
from elmo.embed.dump.write_npz import write_npz
from elmo.embed.dump.write_safetensors import write_safetensors
from elmo.errors import OutputError
from elmo.files import COMPRESSED, atomic_file


@dataclass(frozen=True, kw_only=True)
class MergeSummary:
    """What was put together."""

    path: str
    format: str
    lines: int
    tokens: int
    blocks: int
    bytes: int


def merge(
    target: str | Path, *, overwrite: bool = False, forget_sentences: bool = False, force: bool = False
) -> MergeSummary:
    """Puts the parts in OUT.parts together as OUT; blocks that are missing are an error that names their shards."""
    check_place(target)
    path = Path(target).resolve()
    folder = PartsFolder(Target(path=path, format=""))
    if not folder.path.is_dir():
        merged = " It exists: was it merged already?" if path.exists() else ""
        raise OutputError(f"There are no parts in {folder.path}.{merged}", "Run elmo embed --shard first.")
    folder.lock()
    try:
        folder.open_plan()
        if done_already := finish_result(folder):
            return done_already
        if path.exists() and not overwrite:
            raise exists_error(path)
        return assemble(folder, forget_sentences=forget_sentences, force=force)
    finally:
        folder.close()


def assemble(folder: PartsFolder, *, forget_sentences: bool = False, force: bool = False) -> MergeSummary:
    """Writes the output from complete parts, then deletes them. The folder must be locked."""
    end = check_complete(folder)
    path, output = folder.target.path, folder.plan["output"]
    parts = Parts(folder, end["blocks"])
    _remove_leftovers(path)
    if output["format"] != "jsonl" and not force:  # compressed or not, how long jsonl gets is known too late
        check_room(path, parts.num_bytes("vectors") + parts.num_bytes("lines"))
    with atomic_file(path) as partial:
        _write(partial, parts, forget_sentences, path.suffix if path.suffix in COMPRESSED else "")
        folder.note_result(partial, end)
    folder.remove()
    return _summary(folder, end)


def finish_result(folder: PartsFolder) -> MergeSummary | None:
    """Clears up behind a run that was killed after its output had taken its name; None: there was no such run."""
    counts = folder.counts_of_result()
    if counts is None:
        return None
    folder.remove()
    return _summary(folder, counts)


def check_complete(folder: PartsFolder) -> dict[str, int]:
    """Blocks, lines and tokens of the run, if every block is there."""
    end, shards = folder.read("end.json"), folder.plan["shards"]
    if end is None:
        raise OutputError(
            f"{folder.path}: the input was not read to its end yet ({len(folder.blocks())} blocks are there).",
            "Finish the shards, or run elmo embed again with --resume.",
        )
    there = set(folder.blocks())
    missing = [number for number in range(end["blocks"]) if number not in there]
    if missing:
        of = sorted({number % shards + 1 for number in missing}) if shards else []
        whose = f", all of shards {', '.join(f'{i}/{shards}' for i in of)}" if of else ""
        raise OutputError(
            f"{folder.path}: {len(missing)} of {end['blocks']} blocks are missing{whose}.",
            "Run these shards again; what they have finished is kept." if of else "Run elmo embed with --resume.",
        )
    return {name: int(end[name]) for name in ("blocks", "lines", "tokens")}


def _summary(folder: PartsFolder, counts: dict[str, int]) -> MergeSummary:
    path = folder.target.path
    return MergeSummary(path=str(path), format=folder.plan["output"]["format"], bytes=path.stat().st_size, **counts)


def _write(partial: Path, parts: Parts, forget_sentences: bool, suffix: str) -> None:
    output = parts.plan["output"]
    if output["format"] == "hdf5":
        from elmo.embed.dump.write_hdf5 import write_hdf5  # h5py is slow to import

        forget = forget_sentences or output["forget_sentences"]
        write_hdf5(partial, parts, use_sentence_keys=output["use_sentence_keys"], forget_sentences=forget)
    elif output["format"] == "npz":
        write_npz(partial, parts)
    elif output["format"] == "safetensors":
        write_safetensors(partial, parts)
    elif output["format"] == "parquet":
        from elmo.embed.dump.write_parquet import write_parquet

        write_parquet(partial, parts)
    else:
        write_jsonl(partial, parts, suffix)


def _remove_leftovers(path: Path) -> None:
    # of an assembly that was killed; nobody else can be writing, for the folder is locked
    for file in path.parent.iterdir():
        if file.name.startswith(f".{path.name}.") and file.name.endswith(".partial"):
            file.unlink(missing_ok=True)
