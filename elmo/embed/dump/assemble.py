"""Assembly of the output from part files: the last step of a bulk embedding, or `elmo merge`. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from elmo.embed.dump.estimate import check_free_space
from elmo.embed.dump.part_file import PartFiles
from elmo.embed.dump.part_folder import PartFolder
from elmo.embed.dump.target import Target, check_place, exists_error
from elmo.embed.dump.write_arrays import write_npz, write_safetensors
from elmo.embed.dump.write_jsonl import write_jsonl
from elmo.errors import OutputError
from elmo.files import COMPRESSED, atomic_file


@dataclass(frozen=True, kw_only=True)
class MergeSummary:
    """The output and its size."""

    path: str
    format: str
    lines: int
    tokens: int
    blocks: int
    bytes: int


def merge(
    target: str | Path, *, overwrite: bool = False, forget_sentences: bool = False, force: bool = False
) -> MergeSummary:
    """Assembles OUT from the part files in OUT.parts; missing blocks are an error that names their shards."""
    check_place(target)
    path = Path(target).resolve()
    folder = PartFolder(Target(path=path, format=""))
    if not folder.path.is_dir():
        merged = " It exists: was it merged already?" if path.exists() else ""
        raise OutputError(f"There are no part files in {folder.path}.{merged}", "Run elmo embed --shard first.")
    folder.lock()
    try:
        folder.open_plan()
        if summary := finish_result(folder):
            return summary
        if path.exists() and not overwrite:
            raise exists_error(path)
        return assemble(folder, forget_sentences=forget_sentences, force=force)
    finally:
        folder.close()


def assemble(folder: PartFolder, *, forget_sentences: bool = False, force: bool = False) -> MergeSummary:
    """Writes the output from a complete set of part files, then deletes these. The folder must be locked."""
    counts = check_complete(folder)
    path, output = folder.target.path, folder.plan["output"]
    paths = [folder.part_path(number) for number in range(counts["blocks"])]
    part_files = PartFiles(paths, folder.plan, folder.layout)
    _remove_leftovers(path)
    if output["format"] != "jsonl" and not force:  # the size of jsonl is not known in advance
        check_free_space(path, part_files.num_bytes("vectors") + part_files.num_bytes("lines"))
    with atomic_file(path) as partial:
        _write(partial, part_files, forget_sentences, path.suffix if path.suffix in COMPRESSED else "")
        folder.note_result(partial, counts)
    folder.remove()
    return _summary(folder, counts)


def finish_result(folder: PartFolder) -> MergeSummary | None:
    """Cleans up after a run that was killed when its output was already complete; None if there was no such run."""
    counts = folder.counts_of_result()
    if counts is None:
        return None
    folder.remove()
    return _summary(folder, counts)


def check_complete(folder: PartFolder) -> dict[str, int]:
    """The number of blocks, lines and tokens of the run; an OutputError where blocks are missing."""
    end, shards = folder.read("end.json"), folder.plan["shards"]
    if end is None:
        raise OutputError(
            f"{folder.path}: the input was not read to its end yet ({len(folder.blocks())} blocks are there).",
            "Finish the shards, or run elmo embed again with --resume.",
        )
    finished = set(folder.blocks())
    missing = [number for number in range(end["blocks"]) if number not in finished]
    if missing:
        unfinished = sorted({number % shards + 1 for number in missing}) if shards else []
        owners = f", all of shards {', '.join(f'{i}/{shards}' for i in unfinished)}" if unfinished else ""
        raise OutputError(
            f"{folder.path}: {len(missing)} of {end['blocks']} blocks are missing{owners}.",
            "Run these shards again; their finished blocks are kept." if shards else "Run elmo embed with --resume.",
        )
    return {name: int(end[name]) for name in ("blocks", "lines", "tokens")}


def _summary(folder: PartFolder, counts: dict[str, int]) -> MergeSummary:
    path = folder.target.path
    return MergeSummary(path=str(path), format=folder.plan["output"]["format"], bytes=path.stat().st_size, **counts)


def _write(partial: Path, part_files: PartFiles, forget_sentences: bool, suffix: str) -> None:
    output = part_files.plan["output"]
    if output["format"] == "hdf5":
        from elmo.embed.dump.write_hdf5 import write_hdf5  # h5py is slow to import

        forget = forget_sentences or output["forget_sentences"]
        write_hdf5(partial, part_files, use_sentence_keys=output["use_sentence_keys"], forget_sentences=forget)
    elif output["format"] == "npz":
        write_npz(partial, part_files)
    elif output["format"] == "safetensors":
        write_safetensors(partial, part_files)
    elif output["format"] == "parquet":
        from elmo.embed.dump.write_parquet import write_parquet

        write_parquet(partial, part_files)
    else:
        write_jsonl(partial, part_files, suffix)


def _remove_leftovers(path: Path) -> None:
    # files of a killed assembly; no other process can be writing them, because the folder is locked
    for file in path.parent.iterdir():
        if file.name.startswith(f".{path.name}.") and file.name.endswith(".partial"):
            file.unlink(missing_ok=True)
