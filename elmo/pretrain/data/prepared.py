"""Opens a prepared folder: memory-mapped shards of type ids, the characters of each word type, and the vocabulary.

`prepare` writes the folder, `stream` reads batches from it. A word type (type for short) is a distinct word of the
corpus. The words of the vocabulary come first, in the order of the vocabulary, so a type id below the vocabulary's size
is also the vocabulary id. All later types are words outside the vocabulary: their characters are read as inputs, and
their targets are <UNK>.

    manifest.json                 sources and options, and the size and sha256 of every file; written last
    vocab.txt                     one word per line
    types.bin, types.npy          UTF-8 bytes of all types, concatenated, and the offset of each (num_types + 1)
    type_chars.npy                (num_types, max_chars) uint16, the ids of `elmo.text.chars`
    train-00000.tokens.npy        type ids of all sentences without boundaries, flat, int32
    train-00000.offsets.npy       offset of each sentence, int64, and the total number of tokens at the end
    train-00000.languages.npy     with several languages: index of each sentence's language in the manifest, uint16
    heldout-00000.*               the same for held-out text, in the order of the sources
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from elmo.errors import DataError
from elmo.files import read_json, sha256_file
from elmo.mapped_arrays import open_mapped
from elmo.pretrain.data.languages import Language, heldout_samples
from elmo.schema import ANY, COUNT, NUMBER, SHARE, Keys, List, Maybe, Number, OneOf, check_shape
from elmo.text.vocab import Vocabulary

T = TypeVar("T")

FORMAT, VERSION = "elmo-prepared", 1
MANIFEST = "manifest.json"
_COUNTED_AT_ONCE = 1 << 22  # tokens; bounds the memory of counting
_SHARDS = {"shards": List({"sentences": COUNT, "tokens": COUNT})}
_SOURCE = {
    "path": str,
    "split": OneOf("train", "heldout"),
    "size": COUNT,
    "mtime_ns": Number(low=-(2**63), high=2**63, whole=True),
    "sha256": str,
    "heldout_sentences": COUNT,
    "heldout_tokens": COUNT,
    "skipped": Maybe(str),
    "language?": str,
}
_LANGUAGE = {"name": str, "positions": COUNT, "share": SHARE, "repetitions": Number(low=0, high=1e9)}
_SHAPE = {
    "fingerprint": str,
    "options": {"max_chars": Number(low=3, high=10_000, whole=True), "*": ANY},
    "sources": List(_SOURCE),
    "vocab": {"size": COUNT, "bos": COUNT, "eos": COUNT, "unk": COUNT, "order_score": NUMBER},
    "num_types": COUNT,
    "train": _SHARDS,
    "heldout": _SHARDS,
    "unknown_share": {"train": SHARE, "heldout": SHARE},
    "cut_share": SHARE,
    "languages?": List(_LANGUAGE),
    "files": Keys(r"[\w.-]+", {"size": COUNT, "sha256": str}),
}


@dataclass(frozen=True)
class Split:
    """The shards of the training or the held-out text."""

    folder: Path
    name: str  # train, heldout
    shards: tuple[tuple[int, int], ...]  # (sentences, tokens) of each shard
    sizes: dict[str, int]  # bytes of each file of the folder
    repetitions: tuple[float, ...] = ()  # of each language's sentences in an epoch; (): each sentence is read once

    @property
    def num_sentences(self) -> int:
        return sum(sentences for sentences, _ in self.shards)

    @property
    def num_tokens(self) -> int:
        return sum(tokens for _, tokens in self.shards)

    @property
    def num_positions(self) -> int:
        """Predictions per direction in one pass over the text: n + 1 for a sentence of n tokens."""
        return self.num_tokens + self.num_sentences

    def shard(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Tokens (int32) and offsets (int64) of one shard, memory-mapped; the sizes of its files are checked first."""
        tokens = _open_array(self.folder, f"{self.name}-{number:05d}.tokens.npy", self.sizes)
        offsets = _open_array(self.folder, f"{self.name}-{number:05d}.offsets.npy", self.sizes)
        return tokens, offsets

    def shard_languages(self, number: int) -> np.ndarray:
        """The language of each sentence of a shard as an index in `repetitions`, (sentences,), memory-mapped."""
        return _open_array(self.folder, f"{self.name}-{number:05d}.languages.npy", self.sizes)


class PreparedData:
    """A prepared folder: the splits `train` and `heldout`, the `vocab`, the table of word types, and the `manifest`."""

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder = folder
        self.manifest = manifest
        self.fingerprint: str = manifest["fingerprint"]  # equal for equal contents, byte for byte
        self.num_types: int = manifest["num_types"]
        self.vocab_size: int = manifest["vocab"]["size"]
        self.bos: int = manifest["vocab"]["bos"]
        self.eos: int = manifest["vocab"]["eos"]
        self.unk: int = manifest["vocab"]["unk"]
        self.order_score: float = manifest["vocab"]["order_score"]  # see vocabulary.require_sorted
        self.max_chars: int = manifest["options"]["max_chars"]
        self._sizes = {name: file["size"] for name, file in manifest["files"].items()}
        self.languages = tuple(
            Language(**{key: language[key] for key in _LANGUAGE}) for language in manifest.get("languages", ())
        )
        self.train = self._split("train")
        self.heldout = self._split("heldout")

    def _split(self, name: str) -> Split:
        shards = tuple((shard["sentences"], shard["tokens"]) for shard in self.manifest[name]["shards"])
        repetitions = tuple(language.repetitions for language in self.languages) if name == "train" else ()
        is_sampled = any(repetition != 1 for repetition in repetitions)
        return Split(self.folder, name, shards, self._sizes, repetitions if is_sampled else ())

    def split(self, name: str) -> Split:
        """The split with this name, train or heldout."""
        if name not in ("train", "heldout"):
            raise ValueError(f"split is {name!r}; expected train or heldout")
        return self.train if name == "train" else self.heldout

    def word_counts(self) -> np.ndarray:
        """How often the training text has each word of the vocabulary, (V,) int64.

        <UNK> counts the words outside the vocabulary; <S> and </S> occur once per sentence.
        """
        counts = np.zeros(self.num_types, dtype=np.int64)
        for number in range(len(self.train.shards)):
            tokens, _ = self.train.shard(number)
            for start in range(0, len(tokens), _COUNTED_AT_ONCE):
                counts += np.bincount(tokens[start : start + _COUNTED_AT_ONCE], minlength=self.num_types)
        in_vocab, others = counts[: self.vocab_size], counts[self.vocab_size :]
        in_vocab[self.unk] += others.sum()
        in_vocab[[self.bos, self.eos]] = self.train.num_sentences
        return in_vocab.copy()

    @cached_property
    def vocab(self) -> Vocabulary:
        """The words that the softmax predicts."""
        return Vocabulary.from_file(self.folder / "vocab.txt")

    @cached_property
    def type_chars(self) -> np.ndarray:
        """Character ids of every type, (num_types, C) uint16, shifted by one; memory-mapped."""
        return _open_array(self.folder, "type_chars.npy", self._sizes)

    def type_words(self, type_ids: np.ndarray) -> list[str]:
        """The words of type ids, as a flat list."""
        offsets, data = self._type_table
        return [bytes(data[offsets[i] : offsets[i + 1]]).decode() for i in np.asarray(type_ids).ravel()]

    def heldout_sources(self) -> dict[str, range]:
        """The numbers of the held-out sentences of each source file, by its path."""
        return self.heldout_samples(None)

    def heldout_samples(self, max_words: int | None) -> dict[str, range]:
        """The numbers of the held-out sentences that are measured, by source; see `languages.heldout_samples`."""
        return heldout_samples(self.manifest["sources"], max_words)

    def by_language(self, by_source: Mapping[str, T]) -> dict[str, list[T]]:
        """Values of source files, grouped by the language of the file in the order of `languages`."""
        groups: dict[str, list[T]] = {language.name: [] for language in self.languages}
        for source in self.manifest["sources"]:
            if source.get("language") in groups and source["path"] in by_source:
                groups[source["language"]].append(by_source[source["path"]])
        return {name: values for name, values in groups.items() if values}

    def unknown_shares(self) -> dict[str, float]:
        """The share of held-out words outside the vocabulary, by language."""
        counts: dict[str, np.ndarray] = {}
        for path, sentences in self.heldout_sources().items():
            tokens, offsets = self.heldout.shard(0)  # all held-out text is in one shard
            span = tokens[offsets[sentences.start] : offsets[sentences.stop]]
            counts[path] = np.array([int((span >= self.vocab_size).sum() + (span == self.unk).sum()), len(span)])
        sums = {name: sum(values, np.zeros(2)) for name, values in self.by_language(counts).items()}
        return {name: float(unknown / max(total, 1)) for name, (unknown, total) in sums.items()}

    @cached_property
    def _type_table(self) -> tuple[np.ndarray, np.ndarray]:
        offsets = _open_array(self.folder, "types.npy", self._sizes)
        _check_size(self.folder, "types.bin", self._sizes)
        return offsets, np.memmap(self.folder / "types.bin", dtype=np.uint8, mode="r")


def open_prepared(folder: str | Path, *, verify: bool = False) -> PreparedData:
    """Opens a folder that `elmo prepare` wrote; checks the size of every file, and with `verify` also its sha256.

    `elmo prepare` and `elmo pretrain` verify a folder that an earlier call has written; that reads all of it, which
    takes about one second per gigabyte.
    """
    folder = Path(folder)
    data = PreparedData(folder, read_manifest(folder))
    for name, file in data.manifest["files"].items():
        _check_size(folder, name, data._sizes)
        if (verify or name == "vocab.txt") and sha256_file(folder / name) != file["sha256"]:
            raise DataError(f"{folder / name} is damaged: its sha256 differs from the manifest.", _REPAIR_HINT)
    for split in (data.train, data.heldout):
        for number, (num_sentences, num_tokens) in enumerate(split.shards):
            name = f"{split.name}-{number:05d}"
            tokens, offsets = split.shard(number)
            if len(tokens) != num_tokens or len(offsets) != num_sentences + 1 or offsets[-1] != num_tokens:
                raise DataError(
                    f"{folder / name}.* has {len(offsets) - 1:,} sentences and {len(tokens):,} tokens; expected "
                    f"{num_sentences:,} and {num_tokens:,}, as in the manifest.",
                    _REPAIR_HINT,
                )
    _check_tables(data)
    return data


def _check_tables(data: PreparedData) -> None:
    """Compares the sizes in the manifest with the vocabulary and the table of word types."""
    vocab = data.vocab
    for key, actual in (("size", len(vocab)), ("bos", vocab.bos), ("eos", vocab.eos), ("unk", vocab.unk)):
        if data.manifest["vocab"][key] != actual:
            message = f"{data.folder / MANIFEST}: vocab.{key} is {data.manifest['vocab'][key]}; vocab.txt has {actual}."
            raise DataError(message, _REPAIR_HINT)
    expected = (data.num_types, data.max_chars)
    if data.type_chars.shape != expected:
        raise DataError(
            f"{data.folder / 'type_chars.npy'} has the shape {data.type_chars.shape}; expected {expected}, as in the "
            "manifest.",
            _REPAIR_HINT,
        )


def read_manifest(folder: Path) -> dict[str, Any]:
    """Reads the manifest of a prepared folder and checks its format, version, shape and fingerprint."""
    path = folder / MANIFEST
    if not path.exists():
        raise DataError(
            f"{path}: cannot be read (No such file or directory).", "Is this a folder that `elmo prepare` wrote?"
        )
    manifest = read_json(path, max_bytes=1 << 30)
    if manifest.get("format") != FORMAT:
        raise DataError(f"{path} does not describe prepared text.", "Expected a folder that `elmo prepare` wrote.")
    if manifest.get("version") != VERSION:
        raise DataError(
            f"{path} has version {manifest.get('version')!r:.80}; this program reads {VERSION}.", _REPAIR_HINT
        )
    check_shape(manifest, _SHAPE, path, hint=_REPAIR_HINT)
    if manifest["fingerprint"] != fingerprint_of(manifest["files"]):
        raise DataError(f"{path} is damaged: its fingerprint is not the one of its files.", _REPAIR_HINT)
    return manifest


def fingerprint_of(files: dict[str, dict[str, Any]]) -> str:
    """A hash of the names and contents of all files; equal for equal contents, byte for byte."""
    hashes = [(name, file["sha256"]) for name, file in sorted(files.items())]
    return hashlib.sha256(json.dumps(hashes).encode()).hexdigest()


_REPAIR_HINT = "Delete the folder and prepare the text again."


def _check_size(folder: Path, name: str, sizes: dict[str, int]) -> None:
    path = folder / name
    if name not in sizes:
        raise DataError(f"{path} is not in the manifest.", _REPAIR_HINT)
    try:
        size = path.stat().st_size
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).", _REPAIR_HINT) from error
    if size != sizes[name]:
        state = "empty" if size == 0 else "cut short or changed"
        raise DataError(f"{path} is {state}: {size:,} bytes; expected {sizes[name]:,}.", _REPAIR_HINT)


def _open_array(folder: Path, name: str, sizes: dict[str, int]) -> np.ndarray:
    _check_size(folder, name, sizes)
    return open_mapped(folder / name, _REPAIR_HINT)
