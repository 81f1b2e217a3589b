"""Second pass of `prepare`: chooses the held-out sentences, counts words, writes vocabulary and word types.

A sentence is held out because its file is held out, or because a hash of the sentence is below a threshold. With the
hash, equal sentences belong to the same split, and more text does not move a sentence unless it changes the threshold.
A word type is a distinct word of the corpus. With several languages, the share and the maximum number of held-out
sentences hold for each language, and the vocabulary is chosen by counts that are weighted as training reads the
languages.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elmo.errors import DataError
from elmo.files import sha256_file
from elmo.pretrain.data.languages import Language, sample_languages
from elmo.pretrain.data.prepare_config import PrepareConfig
from elmo.pretrain.data.stateless_random import derive_key, probability_threshold, random_uint64
from elmo.pretrain.data.tokenized_job import StoredJob, load_hashes, load_job
from elmo.pretrain.data.type_table import write_types
from elmo.pretrain.data.vocabulary import WordCounts, choose_words, order_score
from elmo.text.vocab import BOS, EOS, UNK, Vocabulary
from elmo.weights.word_list import write_words

log = logging.getLogger(__name__)

TRAIN, HELDOUT, SKIPPED = 0, 1, 2  # the split of a sentence
SPLIT_NAMES = ("train", "heldout")  # by TRAIN and HELDOUT


def split_and_count(
    config: PrepareConfig,
    vocab: Vocabulary | None,
    jobs: Sequence[StoredJob],
    source_splits: np.ndarray,
    records: list[dict[str, Any]],
    folder: Path,
) -> dict[str, Any]:
    """Chooses the split of each sentence, counts words and writes vocabulary and types; returns part of the manifest.

    Next to each job it writes the splits of the job's sentences and the word ids of the job's words (see `shards`).
    The counts of each source are added to its record.
    """
    skipped = np.array([record["skipped"] is not None for record in records])
    heldout_share = 0.0 if HELDOUT in source_splits else config.heldout
    source_splits = np.where(skipped, SKIPPED, source_splits)
    key = derive_key(config.seed)
    language_names = list(config.languages)
    source_languages = np.array([language_names.index(r["language"]) if language_names else 0 for r in records])
    max_heldout = max(1, config.max_heldout // max(1, len(language_names)))
    thresholds = _heldout_thresholds(jobs, source_splits, source_languages, heldout_share, max_heldout, key)
    source_thresholds = np.array(thresholds, dtype=np.uint64)[source_languages]  # (sources,)
    languages = _languages(config, jobs, source_splits, source_thresholds, source_languages, key)
    repetitions = np.array([language.repetitions for language in languages])
    is_sampled = bool((repetitions != 1).any())
    counts = WordCounts(vocab.words if vocab else (BOS, EOS, UNK), max_types=config.max_types, weighted=is_sampled)
    hashes_of_heldout_files = [hashes[splits == HELDOUT] for hashes, splits in _file_splits(jobs, source_splits)]
    heldout_hashes = np.unique(np.concatenate(hashes_of_heldout_files or [[]]))
    repeated = np.zeros(0, dtype=np.uint64)
    for stored in jobs:
        job, sources = load_job(stored.path), stored.sentence_sources()
        splits = _sentence_splits(job.hashes, sources, source_splits, source_thresholds, key)
        repeated = np.union1d(repeated, np.intersect1d(job.hashes[splits == TRAIN], heldout_hashes))
        token_splits = np.repeat(splits, job.lengths)
        train, heldout = (
            np.bincount(job.ids[token_splits == split], minlength=len(job.words)) for split in (TRAIN, HELDOUT)
        )
        weighted: np.ndarray | None = None
        if is_sampled:
            sentence_weights = np.where(splits == TRAIN, repetitions[source_languages[sources]], 0.0)
            token_weights = np.repeat(sentence_weights, job.lengths)
            weighted = np.bincount(job.ids, weights=token_weights, minlength=len(job.words))
        np.save(stored.path.with_suffix(".splits.npy"), splits.astype(np.int8))
        np.save(stored.path.with_suffix(".word_ids.npy"), counts.add(job.words, train, heldout, weighted))
        if languages:
            np.save(stored.path.with_suffix(".languages.npy"), source_languages[sources].astype(np.uint16))
        for split, prefix in ((TRAIN, ""), (HELDOUT, "heldout_")):
            chosen = splits == split
            for name, weights in (("sentences", None), ("tokens", job.lengths[chosen])):
                per_source = np.bincount(sources[chosen], weights=weights, minlength=len(records))
                for index in np.flatnonzero(per_source):
                    records[index][prefix + name] += int(per_source[index])
    if not any(record["sentences"] for record in records):
        raise DataError("There is no training text: not one sentence.", "Check the files and the held-out share.")
    _warn_of_heldout(records, source_splits, source_languages, language_names, heldout_share)
    if len(repeated):
        percent = 100 * len(repeated) / len(heldout_hashes)
        log.warning("%.1f%% of the distinct held-out sentences also occur in the training text.", percent)
    manifest = {"languages": [language.to_dict() for language in languages]} if languages else {}
    return _write_words(config, vocab, counts, folder) | {"repeated_heldout": len(repeated)} | manifest


def _warn_of_heldout(
    records: Sequence[dict[str, Any]],
    source_splits: np.ndarray,
    source_languages: np.ndarray,
    language_names: Sequence[str],
    share: float,
) -> None:
    """Warns of each language of which no sentence or far more than the wanted share is held out.

    share 0: nothing is held out of the training files, but there may be held-out files. A language without a held-out
    file has had its warning (`missing_heldout`).
    """
    if not share and HELDOUT not in source_splits:
        return
    for language in np.unique(source_languages[source_splits == TRAIN]).tolist():
        rows = [record for record, number in zip(records, source_languages, strict=True) if number == language]
        heldout, train = (sum(row[name] for row in rows) for name in ("heldout_sentences", "sentences"))
        name = f" of {language_names[language]}" if language_names else ""
        if not share and not any(row["split"] == SPLIT_NAMES[HELDOUT] for row in rows):
            continue
        if heldout == 0:
            log.warning("No sentence%s is held out of %d, so that no perplexity is measured.", name, train)
        elif share and heldout > 2 * share * (train + heldout) + 3:
            log.warning(
                "%d of %d sentences%s are held out, not %.0f%%, because equal sentences are held out together.",
                heldout, train + heldout, name, 100 * share,
            )  # fmt: skip


def _sentence_splits(
    hashes: np.ndarray, sources: np.ndarray, source_splits: np.ndarray, source_thresholds: np.ndarray, key: int
) -> np.ndarray:
    """The split of each sentence of a job, (sentences,)."""
    splits: np.ndarray = source_splits[sources]
    splits[(splits == TRAIN) & (random_uint64(hashes, key) < source_thresholds[sources])] = HELDOUT
    return splits


def _languages(
    config: PrepareConfig,
    jobs: Sequence[StoredJob],
    source_splits: np.ndarray,
    source_thresholds: np.ndarray,
    source_languages: np.ndarray,
    key: int,
) -> tuple[Language, ...]:
    """How often training reads each language; () if the text has none."""
    if not config.languages:
        return ()
    positions = np.zeros(len(config.languages), dtype=np.int64)
    for stored in jobs:
        job, sources = load_job(stored.path, with_words=False), stored.sentence_sources()
        in_train = _sentence_splits(job.hashes, sources, source_splits, source_thresholds, key) == TRAIN
        weights = (job.lengths + 1)[in_train]
        counted = np.bincount(source_languages[sources[in_train]], weights=weights, minlength=len(positions))
        positions += counted.astype(np.int64)
    return sample_languages(dict(zip(config.languages, positions.tolist(), strict=True)), config.temperature)


def _file_splits(jobs: Sequence[StoredJob], source_splits: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Of each job: the hashes of its sentences, and the splits of the files they are from, both (sentences,)."""
    for job in jobs:
        yield load_hashes(job.path), source_splits[job.sentence_sources()]


def _heldout_thresholds(
    jobs: Sequence[StoredJob],
    source_splits: np.ndarray,
    source_languages: np.ndarray,
    share: float,
    max_heldout: int,
    key: int,
) -> list[int]:
    """For each language: a sentence is held out if its random number is below this threshold.

    It is the threshold for `share`, a lower one so that at most max_heldout sentences are held out, or a higher one
    so that one sentence is held out if `share` selects none of 20 or more. Not all sentences are held out.
    """
    num_languages = int(source_languages.max(initial=0)) + 1
    if share == 0:
        return [0] * num_languages
    threshold = probability_threshold(share)
    totals, smallest, largest = [0] * num_languages, [(1 << 64) - 1] * num_languages, [0] * num_languages
    below: list[list[np.ndarray]] = [[] for _ in totals]
    for job in jobs:
        sources = job.sentence_sources()
        hashes, in_train = load_hashes(job.path), source_splits[sources] == TRAIN
        sentence_languages = source_languages[sources]
        for language in np.unique(sentence_languages[in_train]).tolist():
            draws = random_uint64(hashes[in_train & (sentence_languages == language)], key)
            totals[language] += len(draws)
            smallest[language] = min(smallest[language], int(draws.min()))
            largest[language] = max(largest[language], int(draws.max()))
            below[language].append(draws[draws < np.uint64(threshold)])
    of_languages = zip(totals, smallest, largest, below, strict=True)
    return [_limit_threshold(threshold, *of_one, max_heldout) for of_one in of_languages]


def _limit_threshold(
    threshold: int, total: int, smallest: int, largest: int, below: list[np.ndarray], max_heldout: int
) -> int:
    """The threshold of one language, from its random numbers: how many, the extremes, and those below the threshold."""
    chosen = np.sort(np.concatenate(below)) if below else np.zeros(0, dtype=np.uint64)
    if len(chosen) > max_heldout:
        threshold = int(chosen[max_heldout])
    elif len(chosen) == 0 and total >= 20:
        threshold = smallest + 1
    return 0 if largest < threshold else threshold  # equal sentences have equal numbers


def _write_words(config: PrepareConfig, vocab: Vocabulary | None, counts: WordCounts, folder: Path) -> dict[str, Any]:
    """Writes the vocabulary, the word types and the map from word ids to type ids; returns part of the manifest."""
    words, word_ids, train, heldout = counts.table()
    if vocab is None:
        vocab = Vocabulary(choose_words(words, train, max_size=config.max_vocab, min_count=config.min_count))
    index_of = {word: i for i, word in enumerate(words)}
    vocab_rows = np.array([index_of[word] for word in vocab.words], dtype=np.int64)  # (V,), into words
    outside_vocab = np.ones(len(words), dtype=bool)
    outside_vocab[vocab_rows] = False
    outside_vocab &= train + heldout > 0
    order = np.concatenate([vocab_rows, np.flatnonzero(outside_vocab)])  # (num_types,), into words
    type_ids = np.full(counts.num_ids, vocab.unk, dtype=np.int32)  # (word ids,); evicted words are read as <UNK>
    type_ids[word_ids[order]] = np.arange(len(order))
    np.save(folder / "jobs" / "type_ids.npy", type_ids)
    write_words(folder / "vocab.txt", vocab.words)
    sizes = write_types(folder, [words[i] for i in order], vocab.bos, vocab.eos, config.max_chars)
    num_tokens = int(train.sum())
    in_vocab, heldout_in_vocab = (
        int(split[vocab_rows].sum()) - int(split[vocab_rows[vocab.unk]]) for split in (train, heldout)
    )
    return {
        "num_types": len(order),
        "vocab": {
            "size": len(vocab),
            "bos": vocab.bos,
            "eos": vocab.eos,
            "unk": vocab.unk,
            "sha256": sha256_file(folder / "vocab.txt"),
            "built": config.vocab_path is None,
            "order_score": order_score(vocab, counts.sorting_counts(word_ids)[vocab_rows]),
        },
        "unknown_share": {
            "train": 1 - in_vocab / max(num_tokens, 1),
            "heldout": 1 - heldout_in_vocab / max(int(heldout.sum()), 1) if heldout.any() else 0.0,
        },
        "cut_share": float(train[order][sizes > config.max_chars - 2].sum() / max(num_tokens, 1)),
        "forgotten_types": counts.num_evicted,
    }
