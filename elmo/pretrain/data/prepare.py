"""Text into the prepared folder (its layout: `prepared`), in three passes that each stay in bounded memory.

1. Workers cut the text and keep each job as numbers of its own words (`tally`); the text is read once.
2. The held-out sentences are chosen and the words counted; vocabulary and type ids follow.
3. Workers turn each job's numbers into type ids and write the shards.

A shard takes jobs from the whole corpus in turn, so every one is a cross-section of all sources. The result depends on
the text and the options alone, not on the number of workers. Longer than most files: the passes are one thing.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from elmo.errors import ConfigError, DataError
from elmo.files import atomic_folder, sha256_file
from elmo.pretrain.data.corpus import Piece, Reading, Source, find_sources, pieces
from elmo.pretrain.data.parallel import map_in_order
from elmo.pretrain.data.prepared import FORMAT, MANIFEST, VERSION, PreparedData, open_prepared
from elmo.pretrain.data.reuse import describe, mtime, reuse
from elmo.pretrain.data.stateless_random import key_of, lots, share_limit
from elmo.pretrain.data.tokenized_job import PieceFacts, load_hashes, load_tally, save_tally, tally_job
from elmo.pretrain.data.type_table import write_types
from elmo.pretrain.data.vocabulary import MAX_TYPES, WordCounts, choose_words, order_score, read_vocabulary
from elmo.progress import Progress
from elmo.text.vocab import BOS, EOS, UNK, Vocabulary
from elmo.weights.word_list import write_words

log = logging.getLogger(__name__)

TRAIN, HELDOUT, LEFT_OUT = 0, 1, 2  # the side of a sentence


@dataclass(frozen=True, kw_only=True)
class PrepareConfig:
    """What text to prepare and how."""

    files: tuple[str, ...]  # names and globs, "-" for standard input
    heldout_files: tuple[str, ...] = ()  # given: exactly these are held out
    heldout: float = 0.01  # otherwise this share of the sentences, chosen by a hash of each
    max_heldout: int = 10_000  # sentences; one is taken from 20 or more even where the share gives none
    reading: Reading = field(default_factory=Reading)
    vocab_path: str | None = None  # None: built from the training text
    max_vocab: int | None = 100_000  # lines of a built vocabulary, <S> </S> <UNK> included; None: no limit
    min_count: int = 2  # rarer words stay out of a built vocabulary, and teach the model what <UNK> is like
    max_chars: int = 50
    seed: int = 0  # of the choice of held-out sentences
    shard_tokens: int = 16_000_000
    max_types: int = MAX_TYPES  # beyond so many different words the rarest are read as <UNK>

    def __post_init__(self) -> None:
        for name in ("files", "heldout_files"):
            value = getattr(self, name)
            object.__setattr__(self, name, (str(value),) if isinstance(value, (str, Path)) else tuple(map(str, value)))
        if not 0 <= self.heldout < 1:
            raise ConfigError(f"heldout is {self.heldout}; expected a share from 0 to below 1.")
        for name, low in (("min_count", 1), ("max_chars", 3), ("shard_tokens", 1), ("max_heldout", 1)):
            if getattr(self, name) < low:
                raise ConfigError(f"{name} is {getattr(self, name)}; expected at least {low}.")


@dataclass(frozen=True)
class _Job:
    """A tallied job on disk: its sentences came from these sources, so many from each, in order."""

    path: Path
    spans: tuple[tuple[int, int], ...]  # (source, sentences)

    def sources(self) -> np.ndarray:
        """The source of each sentence, (sentences,)."""
        numbers, counts = np.array(self.spans, dtype=np.int64).reshape(-1, 2).T
        return np.repeat(numbers, counts)


def prepare(
    config: PrepareConfig,
    out: str | Path,
    *,
    num_workers: int | None = None,
    overwrite: bool = False,
    progress: bool | None = None,
) -> PreparedData:
    """Makes the folder `out`, or opens it when it was made from the same text with the same options.

    A folder made from something else is refused with the differences, unless `overwrite`. num_workers None: all cores.
    """
    out = Path(out)
    training = find_sources(config.files)
    heldout = find_sources(config.heldout_files) if config.heldout_files else []
    if both := {os.path.realpath(s.path) for s in training} & {os.path.realpath(s.path) for s in heldout}:
        raise ConfigError(f"{min(both)} is both training and held-out text.", "Name each file once.")
    sources, options = training + heldout, _options(config)
    splits = np.array([TRAIN] * len(training) + [HELDOUT] * len(heldout))
    if out.exists() and not overwrite:
        return reuse(out, sources, splits, options)
    vocab = read_vocabulary(config.vocab_path) if config.vocab_path else None
    records = describe(sources, splits, num_workers)
    with atomic_folder(out, overwrite=overwrite) as folder:
        jobs_folder = folder / "jobs"
        jobs_folder.mkdir()
        jobs = _tally(config, sources, records, jobs_folder, num_workers, progress)
        manifest = _count(config, vocab, jobs, splits, records, folder)
        manifest |= _write_shards(config, jobs, folder, num_workers)
        shutil.rmtree(jobs_folder)
        files = {path.name: {"size": path.stat().st_size, "sha256": sha256_file(path)} for path in _files_in(folder)}
        names = [(name, facts["sha256"]) for name, facts in files.items()]
        fingerprint = hashlib.sha256(json.dumps(names).encode()).hexdigest()
        head = {"format": FORMAT, "version": VERSION, "fingerprint": fingerprint, "options": options}
        _write_json(folder / MANIFEST, head | manifest | {"sources": records, "files": files})
    return open_prepared(out)


def _options(config: PrepareConfig) -> dict[str, Any]:
    """All that shapes the result besides the text."""
    options = asdict(config)
    del options["files"], options["heldout_files"], options["vocab_path"]
    options |= options.pop("reading")
    options["vocab_sha256"] = sha256_file(config.vocab_path) if config.vocab_path else None
    return options


# ---- pass 1: text to numbers ---------------------------------------------------------------------------------------


def _tally(
    config: PrepareConfig,
    sources: Sequence[Source],
    records: list[dict[str, Any]],
    folder: Path,
    num_workers: int | None,
    progress: bool | None,
) -> list[_Job]:
    """Every job on disk; what each source held goes into its record. A bad source is an error, or marked as skipped."""
    for record in records:
        record |= dict.fromkeys(("lines", "blank_lines", "replaced_characters", "sentences", "tokens"), 0)
        record |= {"heldout_sentences": 0, "heldout_tokens": 0, "skipped": None}
    skip = config.reading.errors == "skip"

    def on_bad(number: int, error: DataError) -> None:
        if not skip:
            raise error
        if records[number]["skipped"] is None:
            log.warning("%s is left out: %s", sources[number].path, error.message)
            records[number]["skipped"] = error.message

    jobs: list[_Job] = []
    work = partial(_tally_to_disk, reading=config.reading, folder=folder)
    numbered = enumerate(pieces(sources, replace=config.reading.errors == "replace", on_bad=on_bad))
    total = sum(source.size for source in sources) if all(source.plain for source in sources) else None
    with Progress("reading", total, unit="bytes", show=progress) as shown:
        for number, facts in enumerate(map_in_order(work, numbered, num_workers)):
            for fact in facts:
                if fact.error:
                    on_bad(fact.source, fact.error)
                record = records[fact.source]
                record["lines"] += fact.num_lines
                record["blank_lines"] += fact.num_blank
                record["replaced_characters"] += fact.num_replaced
                record["size"] += fact.num_bytes if sources[fact.source].stream else 0
            spans = tuple((fact.source, fact.num_sentences) for fact in facts if fact.num_sentences)
            jobs.append(_Job(_job_path(folder, number), spans))
            shown.advance(sum(fact.num_bytes for fact in facts))
    seen = {source for job in jobs for source, _ in job.spans}
    for number, source in enumerate(sources):
        if records[number]["skipped"] is None and number not in seen:
            hint = "Remove it, or choose errors=skip to leave such files out."
            on_bad(number, DataError(f"{source.path} holds no sentence.", hint))
        if records[number]["mtime_ns"] != mtime(source):
            raise DataError(f"{source.path} changed while it was read.", "Prepare again when it is complete.")
    return jobs


def _job_path(folder: Path, number: int) -> Path:
    return folder / f"{number:06d}"


def _tally_to_disk(numbered: tuple[int, list[Piece]], reading: Reading, folder: Path) -> list[PieceFacts]:
    tally = tally_job(numbered[1], reading, hashed=True)
    save_tally(tally, _job_path(folder, numbered[0]))
    return tally.facts


# ---- pass 2: held-out sentences, words, type ids -------------------------------------------------------------------


def _count(
    config: PrepareConfig,
    vocab: Vocabulary | None,
    jobs: Sequence[_Job],
    splits: np.ndarray,
    records: list[dict[str, Any]],
    folder: Path,
) -> dict[str, Any]:
    """Chooses sides, counts, writes vocabulary and types, and beside each job its sides and word numbers."""
    counts = WordCounts(vocab.words if vocab else (BOS, EOS, UNK), max_types=config.max_types)
    left_out = np.array([record["skipped"] is not None for record in records])
    sides_of_source = np.where(left_out, LEFT_OUT, splits)
    key = key_of(config.seed)
    share = 0.0 if HELDOUT in splits else config.heldout
    limit = _heldout_limit(jobs, sides_of_source, share, config.max_heldout, key)
    heldout_hashes = np.unique(np.concatenate([h[s == HELDOUT] for h, s in _sides(jobs, sides_of_source)] or [[]]))
    repeated = np.zeros(0, dtype=np.uint64)
    for job in jobs:
        tally, sources = load_tally(job.path), job.sources()
        sides = sides_of_source[sources]
        sides[(sides == TRAIN) & (lots(tally.hashes, key) < np.uint64(limit))] = HELDOUT
        repeated = np.union1d(repeated, np.intersect1d(tally.hashes[sides == TRAIN], heldout_hashes))
        token_sides = np.repeat(sides, tally.lengths)
        per_side = [np.bincount(tally.ids[token_sides == s], minlength=len(tally.words)) for s in (TRAIN, HELDOUT)]
        np.save(job.path.with_suffix(".sides.npy"), sides.astype(np.int8))
        np.save(job.path.with_suffix(".numbers.npy"), counts.add(tally.words, per_side[TRAIN], per_side[HELDOUT]))
        for side, prefix in ((TRAIN, ""), (HELDOUT, "heldout_")):
            chosen = sides == side
            for name, weights in (("sentences", None), ("tokens", tally.lengths[chosen])):
                found = np.bincount(sources[chosen], weights=weights, minlength=len(records))
                for number in np.flatnonzero(found):
                    records[number][prefix + name] += int(found[number])
    if not any(record["sentences"] for record in records):
        raise DataError("There is no training text: not one sentence.", "Check the files and the held-out share.")
    if len(repeated):
        part = len(repeated) / len(heldout_hashes)
        log.warning("%.1f%% of the different held-out sentences stand in the training text too.", 100 * part)
    return _write_words(config, vocab, counts, folder) | {"repeated_heldout": len(repeated)}


def _sides(jobs: Sequence[_Job], sides_of_source: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for job in jobs:
        yield load_hashes(job.path), sides_of_source[job.sources()]


def _heldout_limit(jobs: Sequence[_Job], sides_of_source: np.ndarray, share: float, max_heldout: int, key: int) -> int:
    """The bound below which a sentence's lot holds it out: the share's, or less so that max_heldout is kept."""
    if share == 0:
        return 0
    limit = share_limit(share)
    total, smallest = 0, (1 << 64) - 1
    below: list[np.ndarray] = []
    for hashes, sides in _sides(jobs, sides_of_source):
        drawn = lots(hashes[sides == TRAIN], key)
        total += len(drawn)
        smallest = min(smallest, int(drawn.min(initial=smallest)))
        below.append(drawn[drawn < np.uint64(limit)])
    chosen = np.sort(np.concatenate(below)) if below else np.zeros(0, dtype=np.uint64)
    if len(chosen) > max_heldout:
        limit = int(chosen[max_heldout])
    elif len(chosen) == 0 and total >= 20:
        limit = smallest + 1
    return 0 if len(chosen) == total else limit  # never all of it


def _write_words(config: PrepareConfig, vocab: Vocabulary | None, counts: WordCounts, folder: Path) -> dict[str, Any]:
    words, numbers, train, heldout = counts.table()
    if vocab is None:
        vocab = Vocabulary(choose_words(words, train, max_size=config.max_vocab, min_count=config.min_count))
    place = {word: i for i, word in enumerate(words)}
    places = np.array([place[word] for word in vocab.words], dtype=np.int64)  # (V,), into words
    rest = np.ones(len(words), dtype=bool)
    rest[places] = False
    rest &= train + heldout > 0
    order = np.concatenate([places, np.flatnonzero(rest)])  # (num_types,), into words
    final = np.full(counts.num_numbers, vocab.unk, dtype=np.int32)  # forgotten words are read as <UNK>
    final[numbers[order]] = np.arange(len(order))
    np.save(folder / "jobs" / "final.npy", final)
    write_words(folder / "vocab.txt", vocab.words)
    sizes = write_types(folder, [words[i] for i in order], vocab.bos, vocab.eos, config.max_chars)
    tokens, known = int(train.sum()), int(train[places].sum()) - int(train[places[vocab.unk]])
    heldout_known = int(heldout[places].sum()) - int(heldout[places[vocab.unk]])
    return {
        "num_types": len(order),
        "vocab": {
            "size": len(vocab),
            "bos": vocab.bos,
            "eos": vocab.eos,
            "unk": vocab.unk,
            "sha256": sha256_file(folder / "vocab.txt"),
            "built": config.vocab_path is None,
            "order_score": order_score(vocab, train[places]),
        },
        "unknown_share": {
            "train": 1 - known / max(tokens, 1),
            "heldout": 1 - heldout_known / max(int(heldout.sum()), 1) if heldout.any() else 0.0,
        },
        "cut_share": float(train[order][sizes > config.max_chars - 2].sum() / max(tokens, 1)),
        "forgotten_types": counts.num_forgotten,
    }


# ---- pass 3: shards ------------------------------------------------------------------------------------------------


def _write_shards(config: PrepareConfig, jobs: Sequence[_Job], folder: Path, num_workers: int | None) -> dict[str, Any]:
    paths: dict[int, list[Path]] = {TRAIN: [], HELDOUT: []}
    train_tokens = 0
    for job in jobs:
        sides, lengths = np.load(job.path.with_suffix(".sides.npy")), load_tally(job.path, with_words=False).lengths
        train_tokens += int(lengths[sides == TRAIN].sum())
        for side in (TRAIN, HELDOUT):
            paths[side] += [job.path] * bool((sides == side).any())
    num_shards = min(len(paths[TRAIN]), -(-train_tokens // config.shard_tokens))
    tasks = [(TRAIN, i, paths[TRAIN][i::num_shards]) for i in range(num_shards)]
    tasks += [(HELDOUT, 0, paths[HELDOUT])] if paths[HELDOUT] else []
    written = map_in_order(partial(_write_shard, folder=folder), tasks, num_workers if train_tokens > 1e6 else 1)
    result: dict[str, Any] = {name: {"sentences": 0, "tokens": 0, "shards": []} for name in ("train", "heldout")}
    for (side, _, _), (sentences, tokens) in zip(tasks, written, strict=True):
        split = result[("train", "heldout")[side]]
        split["sentences"] += sentences
        split["tokens"] += tokens
        split["shards"].append({"sentences": sentences, "tokens": tokens})
    return result


def _write_shard(task: tuple[int, int, list[Path]], folder: Path) -> tuple[int, int]:
    side, number, paths = task
    final = np.load(folder / "jobs" / "final.npy", mmap_mode="r")
    tokens: list[np.ndarray] = []
    lengths: list[np.ndarray] = [np.zeros(1, dtype=np.int64)]
    for path in paths:
        tally = load_tally(path, with_words=False)
        chosen = np.load(path.with_suffix(".sides.npy")) == side
        type_ids = np.asarray(final[np.load(path.with_suffix(".numbers.npy"))])  # of the job's own words
        tokens.append(type_ids[tally.ids[np.repeat(chosen, tally.lengths)]])
        lengths.append(tally.lengths[chosen].astype(np.int64))
    offsets = np.cumsum(np.concatenate(lengths))
    name = f"{('train', 'heldout')[side]}-{number:05d}"
    np.save(folder / f"{name}.tokens.npy", np.concatenate(tokens))
    np.save(folder / f"{name}.offsets.npy", offsets)
    return len(offsets) - 1, int(offsets[-1])


def _files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file())


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
