"""Adapts the vocabulary and the softmax of a biLM to text of a new domain (paper section 3.4).

The softmax keeps its rows for words of the old vocabulary, gets new rows for frequent words of the domain, and is
reordered by the frequencies of the domain, which the sampled softmax needs. An adaptive softmax keeps its clusters; new
words are added to the last one. A model without a softmax (the published files) gets a new one with random weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from elmo.kernels.api import find_strongest_windows
from elmo.model.bilm import BiLM
from elmo.model.config import HeadConfig
from elmo.model.head import AdaptiveHead, SoftmaxHead
from elmo.pretrain.config import RunConfig
from elmo.pretrain.data.languages import sample_languages
from elmo.pretrain.data.prepare_config import PrepareConfig
from elmo.pretrain.data.vocabulary import count_words
from elmo.pretrain.train.step_inputs import step_seed
from elmo.text.chars import encode_token
from elmo.text.vocab import BOS, EOS, UNK, Vocabulary
from elmo.weights.model_parts import ModelParts, build

NEIGHBORS = 10  # old words whose rows are averaged into the row of a new word


@dataclass(frozen=True)
class Coverage:
    """How much of the domain's text the vocabulary covers before and after it is adapted."""

    old_words: int
    new_words: int
    before: float  # share of tokens
    after: float


def adapt_vocabulary(
    parts: ModelParts, config: RunConfig, max_new_words: int, min_count: int, num_workers: int | None
) -> tuple[list[str], Coverage]:
    """The old words and frequent new words, sorted by falling frequency in the domain; unseen old words come last.

    The words of an adaptive softmax keep their order, and the new words follow them.
    """
    words, counted, frequency = _count_domain(config.data, num_workers)
    specials = (BOS, EOS, UNK)
    old = [word for word in (parts.vocab or ()) if word not in specials] if parts.config.head else []
    excluded = {*old, *specials}
    frequent = [word for word in words if word not in excluded and counted[word] >= min_count]
    new = frequent[: max_new_words if old else config.data.max_vocab]
    if parts.vocab is not None and parts.config.head is not None and parts.config.head.kind == "adaptive":
        vocab = [*parts.vocab, *new]  # the order says which cluster a word is in
    else:
        old_rank = {word: rank for rank, word in enumerate(old)}
        ordered = sorted(old + new, key=lambda word: (-frequency.get(word, 0), old_rank.get(word, len(old_rank)), word))
        vocab = [*specials, *ordered]
    total = max(sum(n for word, n in frequency.items() if word not in specials), 1)
    before, after = (min(1.0, sum(frequency.get(word, 0) for word in group) / total) for group in (old, old + new))
    return vocab, Coverage(len(old), len(new), before, after)


def _count_domain(data: PrepareConfig, num_workers: int | None) -> tuple[list[str], dict[str, int], dict[str, float]]:
    """The words of the text in falling order, their counts, and their counts weighted as training reads languages."""

    def table(files: Iterable[str]) -> tuple[list[str], list[int]]:
        words, _, train, _ = count_words(files, data.reading, num_workers=num_workers).table()
        return words, train.tolist()

    if not data.languages:
        words, counts = table(data.files)
        counted = dict(zip(words, counts, strict=True))
        return words, counted, {word: float(count) for word, count in counted.items()}
    tables = {name: table(files) for name, files in data.languages.items()}
    # sentence ends are not counted here: these weights only order the words
    sizes = {name: sum(counts) for name, (_, counts) in tables.items()}
    counted = {}
    frequency: dict[str, float] = {}
    for language in sample_languages(sizes, data.temperature):
        for word, count in zip(*tables[language.name], strict=True):
            counted[word] = counted.get(word, 0) + count
            frequency[word] = frequency.get(word, 0.0) + count * language.repetitions
    return sorted(frequency, key=lambda word: (-frequency[word], word)), counted, frequency


def adapt_model(parts: ModelParts, vocab: list[str], device: str = "cpu", *, seed: int = 0) -> BiLM:
    """The model with a softmax over `vocab`: rows of old words are copied, rows of new words are weighted means.

    The mean is over the rows of the most similar old words. Similarity is the cosine of the context-independent token
    vectors, which depend on the characters alone. Without an old softmax, all rows are random numbers by the seed.
    """
    source = build(parts).to(device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(step_seed(seed, 0, "weights"))
        model = BiLM(replace(parts.config, head=_head_for(parts.config.head, len(vocab)))).to(device)
    weights = {name: tensor for name, tensor in source.state_dict().items() if not name.startswith("head.")}
    model.load_state_dict(weights, strict=False)
    if source.head is None:
        return model
    assert parts.vocab is not None
    old_vocab = Vocabulary(parts.vocab, source=parts.source)
    new_rows = [row for row, word in enumerate(vocab) if word not in old_vocab]
    with torch.no_grad():
        if isinstance(source.head, AdaptiveHead):
            _extend_last_cluster(source, model, old_vocab.words, [vocab[row] for row in new_rows])
        else:
            _copy_rows(source, model, old_vocab, vocab, new_rows)
    return model


def _head_for(old: HeadConfig | None, vocab_size: int) -> HeadConfig:
    """A softmax of the kind of the old one."""
    if old is not None and old.kind == "adaptive":
        return replace(old, vocab_size=vocab_size)
    return HeadConfig(vocab_size=vocab_size)


def _copy_rows(source: BiLM, model: BiLM, old_vocab: Vocabulary, vocab: list[str], new_rows: list[int]) -> None:
    """Fills a softmax whose rows are in the order of `vocab`."""
    assert isinstance(source.head, SoftmaxHead)
    assert isinstance(model.head, SoftmaxHead)
    pairs = [(row, old_vocab.id(word)) for row, word in enumerate(vocab) if word in old_vocab]
    kept, old = (torch.tensor(rows, device=source.head.bias.device) for rows in zip(*pairs, strict=True))
    model.head.weight[kept], model.head.bias[kept] = source.head.weight[old], source.head.bias[old]
    old_words, new_words = [old_vocab.words[i] for i in old.tolist()], [vocab[i] for i in new_rows]
    row = 0
    for nearest, mixture in _similar_words(source, old_words, new_words):
        numbers = torch.tensor(new_rows[row : row + len(nearest)], device=old.device)  # (N,)
        neighbor_rows = old[nearest]  # (N, neighbors)
        model.head.weight[numbers] = (mixture[:, :, None] * source.head.weight[neighbor_rows]).sum(dim=1)
        model.head.bias[numbers] = (mixture * source.head.bias[neighbor_rows]).sum(dim=1)
        row += len(nearest)


def _extend_last_cluster(source: BiLM, model: BiLM, old_words: Sequence[str], new_words: list[str]) -> None:
    """Copies an adaptive softmax; the new words follow the old ones, in the cluster of the rarest."""
    assert isinstance(source.head, AdaptiveHead)
    assert isinstance(model.head, AdaptiveHead)
    weights = source.head.state_dict()
    last = f"softmax.tail.{len(source.head.softmax.tail) - 1}.1.weight"
    table = weights[last]  # (words of the cluster, p)
    similar = _similar_words(source, list(old_words[-len(table) :]), new_words)
    new_rows = [(mixture[:, :, None] * table[nearest]).sum(dim=1) for nearest, mixture in similar]
    weights[last] = torch.cat([table, *new_rows])
    model.head.load_state_dict(weights)


def _similar_words(source: BiLM, old_words: list[str], new_words: list[str]) -> Iterator[tuple[Tensor, Tensor]]:
    """The old words that look most like each new word, and their weights; both (N, neighbors), for N words at a time.

    The row of a new word in the softmax is the mean of their rows with these weights.
    """
    if not new_words:
        return
    old_vectors = _token_vectors(source, old_words)  # (old words, P)
    for start in range(0, len(new_words), 256):
        vectors = _token_vectors(source, new_words[start : start + 256])  # (N, P)
        cosine, nearest = (vectors @ old_vectors.t()).topk(min(NEIGHBORS, len(old_vectors)), dim=1)
        yield nearest, torch.softmax(cosine * 10, dim=1)


def _token_vectors(model: BiLM, words: list[str]) -> Tensor:
    """The context-independent vectors of words, normalised to length 1, (N, P)."""
    chars = model.config.chars
    assert chars is not None
    vectors, parameter = [], next(model.parameters())
    strongest_windows = find_strongest_windows(model, parameter.device, parameter.dtype)
    for start in range(0, len(words), 512):
        ids = np.stack([encode_token(word, chars.max_chars) for word in words[start : start + 512]])
        vectors.append(model.token_encoder(torch.from_numpy(ids).to(parameter.device), strongest_windows))
    return torch.nn.functional.normalize(torch.cat(vectors), dim=1)  # (N, P)
