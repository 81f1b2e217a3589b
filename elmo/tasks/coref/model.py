"""End-to-end coreference (Lee et al. 2017): every span a candidate, the best kept, each linked to one before, or none.

vectors -> biLSTM over sentences -> spans [first; last; attended words; width] -> mention scores -> pruning
        -> scores of (span, earlier span) pairs with distance, genre and speaker -> the best link, or none (score 0)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from elmo.tasks.coref.spans import DISTANCES, all_spans, antecedents, clusters_of, distance_bucket, prune
from elmo.tasks.elmo_input import TokenInputs
from elmo.tasks.layers.dropout import TimeDropout
from elmo.tasks.layers.encoder import BiRNN
from elmo.tasks.task import Labels
from elmo.tasks.token_batch import TokenBatch


@dataclass(frozen=True, kw_only=True)
class CorefConfig:
    """Shape of the resolver."""

    hidden_dim: int = 100  # of a direction of the biLSTM (200 in the paper)
    score_dim: int = 150  # of the two layers behind each score
    feature_dim: int = 20  # of width, distance, genre and speaker
    max_width: int = 10  # tokens of the longest mention
    spans_a_token: float = 0.4  # how many spans are kept
    max_antecedents: int = 100  # how far back a span looks, in kept spans (250 in the paper)
    keep_gold: bool = True  # in training right mentions are never pruned (the paper, with 2,800 documents, leaves it)
    detection: float = 0.1  # weight of the loss of telling mentions from other spans (Zhang et al. 2018); 0: none
    max_sentences: int = 50  # of a document in training; longer ones are cut into parts
    input_dropout: float = 0.5
    dropout: float = 0.2


@dataclass(frozen=True)
class Document:
    """One document: tokens of each sentence, genre's number, speakers as numbers (T,), cluster of each gold mention."""

    lengths: tuple[int, ...]
    genre: int
    speakers: Tensor
    gold: Tensor | None  # (mentions, 3): first, last, cluster from 1


@dataclass(frozen=True)
class CorefBatch:
    """The sentences of all documents, one under the other, where their tokens lie in the flattened rows, and the
    documents."""

    tokens: TokenBatch
    places: Tensor  # (all tokens,)
    documents: tuple[Document, ...]


@dataclass(frozen=True)
class Links:
    """Kept spans (M,) of a document, and scores (M, 1 + K): of no antecedent, and of each in `before` (M, K).

    `mentions` (N,) scores every span of the document, and `is_mention` (N,) tells the right ones, where they are known.
    """

    first: Tensor
    last: Tensor
    before: Tensor
    scores: Tensor
    mentions: Tensor
    is_mention: Tensor | None


class CorefModel(nn.Module):
    """Span ranking. ELMo enters at the input."""

    def __init__(self, config: CorefConfig, labels: Labels, inputs: TokenInputs) -> None:
        super().__init__()
        self.inputs, self.config = inputs, config
        F = config.feature_dim
        self.input_dropout, self.dropout = TimeDropout(config.input_dropout), nn.Dropout(config.dropout)
        self.encoder = BiRNN(inputs.dim, config.hidden_dim)
        encoded = self.encoder.dim + inputs.output_dim
        self.attention = _scorer(encoded, config, 1)
        self.width = nn.Embedding(config.max_width, F)
        span_dim = 2 * encoded + inputs.dim + F
        self.mention = _scorer(span_dim, config, 1)
        self.distance = nn.Embedding(len(DISTANCES), F)
        self.genre = nn.Embedding(max(1, len(labels["genre"])), F)
        self.speaker = nn.Embedding(3, F)  # not known, another, the same
        self.pair = PairScorer(span_dim, 3 * F, config)

    def loss(self, batch: CorefBatch) -> Tensor:
        """Minus the log probability of any right antecedent, a mean over kept spans, and of telling mentions from other
        spans; mean over documents."""
        losses = [
            marginal_loss(links, document.gold) + self.config.detection * detection_loss(links)
            for document, links in zip(batch.documents, self.links(batch), strict=True)
            if document.gold is not None
        ]
        return torch.stack(losses).mean()

    def predict(self, batch: CorefBatch) -> list[list[list[tuple[int, int]]]]:
        """The clusters of each document."""
        return [resolve(links) for links in self.links(batch)]

    def links(self, batch: CorefBatch) -> list[Links]:
        """What each document's spans may refer to."""
        embedded = self.inputs(batch.tokens)
        vectors = self.input_dropout(embedded.vectors)  # (S, T, D)
        encoded = self.dropout(self.encoder(vectors, batch.tokens.mask, batch.tokens.packing))
        hidden = self.inputs.at_output(encoded, embedded)  # (S, T, H)
        sizes = [sum(document.lengths) for document in batch.documents]
        x, h = (rows.flatten(0, 1).index_select(0, batch.places).split(sizes) for rows in (vectors, hidden))
        parts = zip(batch.documents, x, h, strict=True)
        return [self._document(document, x, h) for document, x, h in parts]

    def _document(self, document: Document, x: Tensor, h: Tensor) -> Links:
        """x (T, D) and h (T, H) are one document's tokens."""
        config = self.config
        first, last = all_spans(document.lengths, config.max_width, h.device)  # (N,)
        spans = self._spans(x, h, first, last)  # (N, G)
        scores = self.mention(spans)[:, 0].float()  # (N,)
        count = max(1, int(config.spans_a_token * len(x)))
        mentions = scores
        is_mention = None if document.gold is None else self._is_mention(document.gold, first, last)  # (N,)
        if self.training:
            kept = self._kept_in_training(is_mention, scores.detach(), count)  # (M,)
        else:
            kept = torch.tensor(prune(first.tolist(), last.tolist(), scores.tolist(), count), device=h.device)  # (M,)
        first, last, spans, scores = (values.index_select(0, kept) for values in (first, last, spans, scores))
        before, exists = antecedents(len(kept), config.max_antecedents, h.device)  # (M, K)
        features = self._features(document, first, before)  # (M, K, 3F)
        pairs = self.pair(spans, before, features).float() + scores[:, None] + _rows(scores, before)  # (M, K)
        pairs = pairs.masked_fill(~exists, -1e30)
        links = torch.cat([torch.zeros_like(scores)[:, None], pairs], dim=1)  # (M, 1 + K)
        return Links(first, last, before, links, mentions, is_mention)

    def _is_mention(self, gold: Tensor, first: Tensor, last: Tensor) -> Tensor:
        """Which spans (N,) are right mentions."""
        width = self.config.max_width
        apart = gold[:, 1] - gold[:, 0]  # (mentions,)
        wanted = torch.where(apart < width, gold[:, 0] * width + apart, -1)
        return ((first * width + last - first)[:, None] == wanted).any(dim=1)

    def _kept_in_training(self, is_mention: Tensor | None, scores: Tensor, count: int) -> Tensor:
        """The best `count` spans, crossing ones too: what is not kept gets no gradient and never gets better itself.

        With keep_gold the right mentions are among them; in a small corpus few would be by chance. Then it is the
        detection loss that teaches mentions to be kept: without it F1 on dev fell while the loss did.
        """
        if self.config.keep_gold and is_mention is not None:
            scores = scores + 1e6 * is_mention
        return scores.topk(min(count, len(scores))).indices.sort().values

    def _spans(self, x: Tensor, h: Tensor, first: Tensor, last: Tensor) -> Tensor:
        """(N, G): [h of the first token; of the last; x of all tokens by attention; width]."""
        T, W = len(h), self.config.max_width
        # all spans that begin at a token share a window of W tokens: they are attended to in one product a token
        steps = torch.arange(W, device=h.device)
        window = (torch.arange(T, device=h.device)[:, None] + steps).clamp(max=T - 1).flatten()  # (T*W,)
        weights = self.attention(h)[:, 0].float().index_select(0, window).view(T, 1, W)
        weights = weights.masked_fill(steps > steps[:, None], -1e30)  # (T, W, W): span of each width, its tokens
        heads = torch.softmax(weights, dim=-1).to(x.dtype) @ x.index_select(0, window).view(T, W, -1)  # (T, W, D)
        heads = heads.flatten(0, 1).index_select(0, first * W + last - first)  # (N, D)
        width = self.dropout(self.width(last - first))  # (N, F)
        ends = h.index_select(0, first), h.index_select(0, last)  # (N, H)
        return torch.cat([*ends, heads.to(h.dtype), width.to(h.dtype)], dim=-1)

    def _features(self, document: Document, first: Tensor, before: Tensor) -> Tensor:
        M, K = before.shape
        apart = distance_bucket(torch.arange(M, device=before.device)[:, None] - before)  # (M, K), in kept spans
        genre = before.new_full((M, K), max(0, document.genre))
        said_by = document.speakers[first]  # (M,), 0: not known
        is_known = (said_by[:, None] > 0) & (said_by[before] > 0)
        same = torch.where(is_known, 1 + (said_by[:, None] == said_by[before]).long(), 0)  # (M, K)
        features = torch.cat([self.distance(apart), self.genre(genre), self.speaker(same)], dim=-1)  # (M, K, 3F)
        return self.dropout(features)


class PairScorer(nn.Module):
    """Scores (M, K) of [g; g'; g * g'; features] through two layers, the parts of the first layer computed apart."""

    def __init__(self, span_dim: int, feature_dim: int, config: CorefConfig) -> None:
        super().__init__()
        self.of_span = nn.Linear(span_dim, config.score_dim)
        self.of_earlier = nn.Linear(span_dim, config.score_dim, bias=False)
        self.of_both = nn.Linear(span_dim, config.score_dim, bias=False)
        self.of_features = nn.Linear(feature_dim, config.score_dim, bias=False)
        drop = nn.Dropout(config.dropout)
        self.rest = nn.Sequential(
            nn.ReLU(),
            drop,
            nn.Linear(config.score_dim, config.score_dim),
            nn.ReLU(),
            drop,
            nn.Linear(config.score_dim, 1),
        )

    def forward(self, spans: Tensor, before: Tensor, features: Tensor) -> Tensor:
        both = self.of_both(spans[:, None] * _rows(spans, before))  # (M, K, score)
        apart = self.of_span(spans)[:, None] + _rows(self.of_earlier(spans), before) + self.of_features(features)
        return self.rest(both + apart)[:, :, 0]  # (M, K)


def marginal_loss(links: Links, gold: Tensor) -> Tensor:
    """Minus log of what the scores give to all right antecedents together; "none" is right where there are none."""
    clusters = torch.zeros_like(links.first)  # (M,), 0: in no cluster
    if len(gold):
        match = (links.first[:, None] == gold[:, 0]) & (links.last[:, None] == gold[:, 1])  # (M, mentions)
        clusters = (match * gold[:, 2]).sum(dim=1)
    exists = links.scores[:, 1:] > -1e29
    right = exists & (clusters[:, None] == clusters[links.before]) & (clusters[:, None] > 0)  # (M, K)
    right = torch.cat([~right.any(dim=1, keepdim=True), right], dim=1)  # (M, 1 + K)
    of_right = torch.logsumexp(links.scores.masked_fill(~right, -1e30), dim=1)  # (M,)
    return (torch.logsumexp(links.scores, dim=1) - of_right).mean()


def detection_loss(links: Links) -> Tensor:
    """Cross entropy of every span's being a mention, a sum over all by the number of kept ones."""
    assert links.is_mention is not None
    right = links.is_mention.to(links.mentions.dtype)
    wrongs = nn.functional.binary_cross_entropy_with_logits(links.mentions, right, reduction="sum")
    return wrongs / len(links.first)


def resolve(links: Links) -> list[list[tuple[int, int]]]:
    """Clusters along each span's best link, as (first, last) tokens."""
    best = links.scores.argmax(dim=1)  # (M,), 0: none
    targets = torch.where(best > 0, links.before.gather(1, (best - 1).clamp(min=0)[:, None])[:, 0], -1).tolist()
    spans = list(zip(links.first.tolist(), links.last.tolist(), strict=True))
    return [[spans[number] for number in cluster] for cluster in clusters_of(targets)]


def _rows(values: Tensor, places: Tensor) -> Tensor:
    """values[places], of which the gradient is a plain sum and not a sort."""
    return values.index_select(0, places.flatten()).unflatten(0, places.shape)


def _scorer(input_dim: int, config: CorefConfig, output_dim: int) -> nn.Sequential:
    drop, hidden = nn.Dropout(config.dropout), config.score_dim
    return nn.Sequential(
        nn.Linear(input_dim, hidden),
        nn.ReLU(),
        drop,
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        drop,
        nn.Linear(hidden, output_dim),
    )
