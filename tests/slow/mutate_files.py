"""Reads files with random changes, of each format, and reports if one is neither read nor refused.

    python mutate_files.py FOLDER COUNT FORMAT...       FORMAT: a key of FORMATS; prints one JSON line for each

Each change is a few flipped bits, other bytes, a piece that is cut out, repeated or zeroed, or a shorter file. Each
format has a process of its own, because a damaged file may end it. Its memory is limited, and a read that takes minutes
ends it.
"""

from __future__ import annotations

import bz2
import faulthandler
import gzip
import hashlib
import json
import logging
import lzma
import os
import random
import resource
import shutil
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import peer_models
import tiny_run
import torch
from forked import in_child
from models_with_head import tiny_with_head
from mutations import mutate_bytes
from published_models import options_of

from elmo.embed.dump.assemble import merge
from elmo.embed.dump.job import dump
from elmo.embed.dump.options import DumpOptions
from elmo.embed.load import load
from elmo.errors import ElmoError
from elmo.pretrain.data.prepare import prepare
from elmo.pretrain.data.prepare_config import PrepareConfig
from elmo.pretrain.data.prepared import open_prepared
from elmo.pretrain.train.checkpoint import load_checkpoint
from elmo.probes.vector_source import read_static_vectors
from elmo.text.lines import read_lines
from elmo.weights.formats import read_model
from elmo.weights.model_parts import build
from elmo.weights.published import write_published
from elmo.weights.store import save_store
from elmo.weights.tf_checkpoint import published_names, read_tf_arrays
from elmo.weights.word_list import read_words

MEMORY = 8 << 30  # bytes of address space; torch alone takes some
SECONDS = 300.0  # for one file, on a busy machine
FIXTURES = Path(__file__).parents[1] / "fixtures"


@dataclass(frozen=True)
class Case:
    """Files of one format, and a function that reads them."""

    files: list[Path]  # those that are changed
    read: Callable[[], object]
    repair: Callable[[], object] = lambda: None  # after a change, for example of the checksums
    restore: Callable[[], object] = lambda: None  # before a change, if reading changes files


def main() -> None:
    torch.set_num_threads(1)
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    for number, name in enumerate(sys.argv[3:]):
        own = folder / str(number)
        own.mkdir()
        status = in_child(lambda name=name, own=own: read_mutants(name, own, count))  # type: ignore[misc]
        lines = (own / "output").read_text(encoding="utf-8", errors="replace").splitlines()
        print(json.dumps({"format": name, "status": status, "output": lines[-40:]}), flush=True)


def read_mutants(name: str, folder: Path, count: int) -> None:
    """Reads `count` mutants of a format. The last line of the output is the number of refused ones, or the error."""
    output = os.open(folder / "output", os.O_CREAT | os.O_WRONLY)
    os.dup2(output, 1)
    os.dup2(output, 2)
    logging.disable(logging.CRITICAL)
    files = folder / "files"
    files.mkdir()
    case = FORMATS[name](files)
    case.read()
    case.restore()
    originals = {path: path.read_bytes() for path in case.files}
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    refused = 0
    for seed in range(count):
        print("seed", seed, flush=True)
        generator = random.Random(seed)
        path = generator.choice(case.files)
        case.restore()
        path.write_bytes(mutate_bytes(originals[path], generator))
        case.repair()
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        try:
            case.read()
        except ElmoError:
            refused += 1
        faulthandler.cancel_dump_traceback_later()
        if path.parent.exists():  # reading some formats removes their files; `restore` brings them back
            path.write_bytes(originals[path])
    print("refused", refused, flush=True)


def model_case(path: Path, files: list[Path], repair: Callable[[], object] = lambda: None) -> Case:
    return Case(files, lambda: build(read_model(path)), repair)


def published(folder: Path) -> Case:
    write_published(folder / "model", tiny_with_head())
    return model_case(folder / "model", sorted((folder / "model").iterdir()))


def store(folder: Path, storage: str = "float32", *, repairs: bool = False) -> Case:
    """Our own folder; with `repairs` the checksums in the manifest are made right after each change."""
    model = folder / "model"
    save_store(model, tiny_with_head(), storage=storage)

    def repair() -> None:
        manifest = json.loads((model / "manifest.json").read_text(encoding="utf-8"))
        for name in manifest["files"]:
            data = (model / name).read_bytes()
            manifest["files"][name] = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
        (model / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")

    files = [path for path in sorted(model.iterdir()) if not repairs or path.name != "manifest.json"]
    return model_case(model, files, repair if repairs else lambda: None)


def zipped(folder: Path, method: int = zipfile.ZIP_DEFLATED) -> Case:
    write_published(folder / "model", tiny_with_head())
    with zipfile.ZipFile(folder / "model.zip", "w", method) as archive:
        for path in sorted((folder / "model").iterdir()):
            archive.write(path, path.name)
    return model_case(folder / "model.zip", [folder / "model.zip"])


def state_dict(folder: Path, *, is_legacy: bool = False) -> Case:
    state = peer_models.allennlp_state(*peer_models.random_model(dim=12))
    torch.save(state, folder / "best.th", _use_new_zipfile_serialization=not is_legacy)
    return model_case(folder / "best.th", [folder / "best.th"])


def archive(folder: Path, *, is_packed: bool = True) -> Case:
    options, weights = peer_models.random_model(dim=12)
    path = peer_models.write_archive(folder / "model.tar.gz", options, peer_models.allennlp_state(options, weights))
    if not is_packed:
        path = path.rename(folder / "packed")
        (folder / "best.th").write_bytes(gzip.decompress(path.read_bytes()))  # recognised by its content
        path = folder / "best.th"
    return model_case(path, [path])


def manylangs(folder: Path) -> Case:
    model = peer_models.write_manylangs(folder / "model", *peer_models.random_manylangs())
    return model_case(model, sorted(path for path in model.iterdir() if path.is_file()))


def tensorflow(folder: Path) -> Case:
    model = folder / "model"
    shutil.copytree(FIXTURES / "tf_checkpoint" / "bilm", model)
    (model / "options.json").write_text(json.dumps(options_of(published_names(read_tf_arrays(model)))))
    files = [path for path in model.iterdir() if path.name == "checkpoint" or ".ckpt" in path.name]
    return model_case(model, sorted(path for path in files if not path.name.endswith(".meta")))


def word_list(folder: Path, suffix: str, compress: Callable[[bytes], bytes]) -> Case:
    path = folder / f"vocab.txt{suffix}"
    path.write_bytes(compress("".join(f"wörd{k}\n" for k in range(3000)).encode()))
    return Case([path], lambda: read_words(path))


def text(folder: Path, suffix: str, compress: Callable[[bytes], bytes]) -> Case:
    path = folder / f"text.txt{suffix}"
    path.write_bytes(compress("".join(f"a line {k} of text .\n" for k in range(3000)).encode()))
    return Case([path], lambda: list(read_lines(path)))


def word_vectors(folder: Path) -> Case:
    path = folder / "vectors.txt"
    path.write_text("200 4\n" + "".join(f"word{k} 0.5 -1.25 {k} 1e-3\n" for k in range(200)), encoding="utf-8")
    return Case([path], lambda: read_static_vectors(str(path)))


def parts(folder: Path) -> Case:
    source, out = folder / "in.txt", folder / "out.npz"
    source.write_text("A cat sat .\nIt slept .\n" * 40, encoding="utf-8")
    embedder = load("tiny-random", device="cpu", tokenizer="whitespace")
    for shard in (1, 2):
        dump(embedder, source, out, DumpOptions(shard=(shard, 2), block_tokens=100))
    part_folder = folder / "out.npz.parts"
    shutil.copytree(part_folder, folder / "copy")

    def restore() -> None:
        out.unlink(missing_ok=True)
        shutil.rmtree(part_folder, ignore_errors=True)
        shutil.copytree(folder / "copy", part_folder)

    restore()
    files = [path for path in sorted(part_folder.iterdir()) if path.suffix in (".part", ".json")]
    return Case(files, lambda: merge(out), restore=restore)


def prepared(folder: Path) -> Case:
    """Shards and tables are checked by their checksums when `verify` is on, and otherwise by their sizes and ranges."""
    out = folder / "prepared"
    prepare(PrepareConfig(files=(str(tiny_run.write_text(folder / "text.txt")),)), out, num_workers=1)

    def read() -> None:
        data = open_prepared(out)
        [split.num_tokens for split in (data.train, data.heldout)]
        open_prepared(out, verify=True)

    return Case(sorted(path for path in out.rglob("*") if path.is_file()), read)


def checkpoint(folder: Path) -> Case:
    """A pretraining checkpoint whose manifest has the right checksum of each changed file."""
    tiny_run.run(tiny_run.write_text(folder / "text.txt"), folder / "run", tiny_run.train_settings(max_steps=3))
    (step,) = (folder / "run" / "checkpoints").iterdir()

    def repair() -> None:
        manifest = json.loads((step / "manifest.json").read_text(encoding="utf-8"))
        for name in manifest["files"]:
            manifest["files"][name] = hashlib.sha256((step / name).read_bytes()).hexdigest()
        (step / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")

    files = [step / "model.safetensors", step / "training.pt"]
    return Case(files, lambda: load_checkpoint(step), repair)


def zst(data: bytes) -> bytes:
    import zstandard

    return zstandard.compress(data)


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zst,
}  # fmt: skip
FORMATS: dict[str, Callable[[Path], Case]] = {
    "hdf5": published,
    "safetensors": store,
    "safetensors, checksums repaired": lambda folder: store(folder, repairs=True),
    "safetensors int8, checksums repaired": lambda folder: store(folder, "int8", repairs=True),
    "zip": zipped,
    "zip, stored": lambda folder: zipped(folder, zipfile.ZIP_STORED),
    "torch": state_dict,
    "torch, old format": lambda folder: state_dict(folder, is_legacy=True),
    "tar.gz": archive,
    "tar": lambda folder: archive(folder, is_packed=False),
    "manylangs": manylangs,
    "tensorflow": tensorflow,
    **{f"words{s}": lambda folder, s=s, c=c: word_list(folder, s, c) for s, c in COMPRESSIONS.items()},
    **{f"text{s}": lambda folder, s=s, c=c: text(folder, s, c) for s, c in COMPRESSIONS.items()},
    "word vectors": word_vectors,
    "parts of an embedding": parts,
    "prepared text": prepared,
    "training checkpoint": checkpoint,
}


if __name__ == "__main__":
    main()
