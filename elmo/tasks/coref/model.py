"""The model of the coref task: end-to-end span ranking (Lee et al. 2017).

vectors -> biLSTM over sentences -> spans [first; last; attended words; width] -> mention scores -> pruning
        -> scores of (span, earlier span) pairs with distance, genre and speaker -> the best link, or none (score 0)

Letters: N all spans of a document, M spans after pruning, K antecedents per span, W largest width of a span, G width of
a span vector, F width of a feature vector.
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
    """Settings of the model."""

    hidden_dim: int = 100  # of the biLSTM per direction (200 in the paper)
    score_dim: int = 150  # of the two hidden layers of each scorer
    feature_dim: int = 20  # of width, distance, genre and speaker
    max_width: int = 10  # tokens of the longest mention
    spans_a_token: float = 0.4  # spans after pruning, per token
    max_antecedents: int = 100  # candidates per span, among the spans after pruning (250 in the paper)
    keep_gold: bool = True  # gold mentions are not pruned in training (they are in the paper, with 2,800 documents)
    detection: float = 0.1  # weight of the mention detection loss (Zhang et al. 2018); 0: none
    max_sentences: int = 50  # of a document in training; longer ones are split into chunks
    input_dropout: float = 0.5
    dropout: float = 0.2


@dataclass(frozen=True)
class Document:
    """One document as numbers."""

    lengths: tuple[int, ...]  # tokens per sentence
    genre: int  # label id
    speakers: Tensor  # (T,) speaker of each token from 1, 0: unknown
    gold: Tensor | None  # (mentions, 3): first, last, cluster from 1; None for unlabelled text


@dataclass(frozen=True)
class CorefBatch:
    """The sentences of all documents as rows, and the documents."""

    tokens: TokenBatch
    token_indices: Tensor  # (all tokens,) positions of the tokens in the flattened rows
    documents: tuple[Document, ...]


@dataclass(frozen=True)
class Links:
    """The spans of a document after pruning, and the scores of their antecedents."""

    first: Tensor  # (M,)
    last: Tensor  # (M,)
    antecedents: Tensor  # (M, K) indices of earlier spans
    scores: Tensor  # (M, 1 + K) of no antecedent, then of each antecedent
    mention_scores: Tensor  # (N,) of all spans before pruning
    is_mention: Tensor | None  # (N,) true for gold mentions; None for unlabelled text


class CorefModel(nn.Module):
    """The span ranking model; by default ELMo is at the input."""

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
        self.speaker = nn.Embedding(3, F)  # unknown, different, same
        self.pair = PairScorer(span_dim, 3 * F, config)

    def loss(self, batch: CorefBatch) -> Tensor:
        """Marginal loss of the antecedents plus the weighted mention detection loss, mean over documents."""
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
        """The scores of the possible antecedents, for each document."""
        embedded = self.inputs(batch.tokens)
        vectors = self.input_dropout(embedded.vectors)  # (B, T, dim)
        encoded = self.dropout(self.encoder(vectors, batch.tokens.mask, batch.tokens.packing))
        hidden = self.inputs.at_output(encoded, embedded)  # (B, T, 2H + output_dim)
        sizes = [sum(document.lengths) for document in batch.documents]
        x, h = (
            torch.split(rows.flatten(0, 1).index_select(0, batch.token_indices), sizes) for rows in (vectors, hidden)
        )
        return [self._document_links(*tensors) for tensors in zip(batch.documents, x, h, strict=True)]

    def _document_links(self, document: Document, x: Tensor, h: Tensor) -> Links:
        """The links of one document; x (T, dim) and h (T, 2H + output_dim) are input and encoding of its T tokens."""
        config = self.config
        first, last = all_spans(document.lengths, config.max_width, h.device)  # (N,)
        spans = self._span_vectors(x, h, first, last)  # (N, G)
        mention_scores = self.mention(spans)[:, 0].float()  # (N,)
        count = max(1, int(config.spans_a_token * len(x)))
        is_mention = None if document.gold is None else self._is_mention(document.gold, first, last)  # (N,)
        if self.training:
            selected = self._select_in_training(is_mention, mention_scores.detach(), count)  # (M,)
        else:
            pruned = prune(first.tolist(), last.tolist(), mention_scores.tolist(), count)
            selected = torch.tensor(pruned, device=h.device)  # (M,)
        first, last, spans, scores = (
            values.index_select(0, selected) for values in (first, last, spans, mention_scores)
        )
        earlier, exists = antecedents(len(selected), config.max_antecedents, h.device)  # (M, K)
        features = self._features(document, first, earlier)  # (M, K, 3F)
        pair_scores = self.pair(spans, earlier, features).float() + scores[:, None] + _select(scores, earlier)  # (M, K)
        pair_scores = pair_scores.masked_fill(~exists, -1e30)
        link_scores = torch.cat([torch.zeros_like(scores)[:, None], pair_scores], dim=1)  # (M, 1 + K)
        return Links(first, last, earlier, link_scores, mention_scores, is_mention)

    def _is_mention(self, gold: Tensor, first: Tensor, last: Tensor) -> Tensor:
        """Whether each span is a gold mention, (N,)."""
        W = self.config.max_width
        width = gold[:, 1] - gold[:, 0]  # (mentions,), less one
        gold_keys = torch.where(width < W, gold[:, 0] * W + width, -1)
        return ((first * W + last - first)[:, None] == gold_keys).any(dim=1)

    def _select_in_training(self, is_mention: Tensor | None, scores: Tensor, count: int) -> Tensor:
        """Indices of the best `count` spans, including crossing ones, because a span that is pruned gets no gradient.

        With keep_gold the gold mentions are among them; in a small corpus few would be selected by chance. Then the
        detection loss trains the model to select mentions: without it the F1 on dev decreased along with the loss.
        """
        if self.config.keep_gold and is_mention is not None:
            scores = scores + 1e6 * is_mention
        return scores.topk(min(count, len(scores))).indices.sort().values

    def _span_vectors(self, x: Tensor, h: Tensor, first: Tensor, last: Tensor) -> Tensor:
        """(N, G): [h of the first token; h of the last token; attention over x of all tokens; width]."""
        T, W = len(h), self.config.max_width
        # all spans that begin at the same token share a window of W tokens, so one matrix product serves all of them
        steps = torch.arange(W, device=h.device)
        window = (torch.arange(T, device=h.device)[:, None] + steps).clamp(max=T - 1).flatten()  # (T*W,)
        weights = self.attention(h)[:, 0].float().index_select(0, window).view(T, 1, W)
        weights = weights.masked_fill(steps > steps[:, None], -1e30)  # (T, W, W): for each width, its tokens
        heads = torch.softmax(weights, dim=-1).to(x.dtype) @ x.index_select(0, window).view(T, W, -1)  # (T, W, dim)
        heads = heads.flatten(0, 1).index_select(0, first * W + last - first)  # (N, dim)
        width = self.dropout(self.width(last - first))  # (N, F)
        ends = h.index_select(0, first), h.index_select(0, last)
        return torch.cat([*ends, heads.to(h.dtype), width.to(h.dtype)], dim=-1)  # (N, G)

    def _features(self, document: Document, first: Tensor, earlier: Tensor) -> Tensor:
        """The features of each pair of a span and an antecedent, (M, K, 3F): distance, genre and speaker."""
        M, K = earlier.shape
        distance = distance_bucket(torch.arange(M, device=earlier.device)[:, None] - earlier)  # (M, K), in spans
        genre = earlier.new_full((M, K), max(0, document.genre))
        speaker = document.speakers[first]  # (M,), 0: unknown
        is_known = (speaker[:, None] > 0) & (speaker[earlier] > 0)
        same = torch.where(is_known, 1 + (speaker[:, None] == speaker[earlier]).long(), 0)  # (M, K)
        features = torch.cat([self.distance(distance), self.genre(genre), self.speaker(same)], dim=-1)  # (M, K, 3F)
        dropped: Tensor = self.dropout(features)
        return dropped


class PairScorer(nn.Module):
    """Scores (M, K) of [g; g'; g * g'; features] with two hidden layers; the first one is a sum of four linear maps."""

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

    def forward(self, spans: Tensor, earlier: Tensor, features: Tensor) -> Tensor:
        products = self.of_both(spans[:, None] * _select(spans, earlier))  # (M, K, score_dim)
        others = self.of_span(spans)[:, None] + _select(self.of_earlier(spans), earlier) + self.of_features(features)
        scores: Tensor = self.rest(products + others)[:, :, 0]  # (M, K)
        return scores


def marginal_loss(links: Links, gold: Tensor) -> Tensor:
    """Negative log probability of all correct antecedents together, mean over spans.

    For a span without a correct antecedent, "no antecedent" is correct.
    """
    clusters = torch.zeros_like(links.first)  # (M,), 0: in no cluster
    if len(gold):
        match = (links.first[:, None] == gold[:, 0]) & (links.last[:, None] == gold[:, 1])  # (M, mentions)
        clusters = (match * gold[:, 2]).sum(dim=1)
    exists = links.scores[:, 1:] > -1e29
    is_correct = exists & (clusters[:, None] == clusters[links.antecedents]) & (clusters[:, None] > 0)  # (M, K)
    is_correct = torch.cat([~is_correct.any(dim=1, keepdim=True), is_correct], dim=1)  # (M, 1 + K)
    of_correct = torch.logsumexp(links.scores.masked_fill(~is_correct, -1e30), dim=1)  # (M,)
    return (torch.logsumexp(links.scores, dim=1) - of_correct).mean()


def detection_loss(links: Links) -> Tensor:
    """Binary cross entropy of all N spans as mentions: the sum over spans, divided by M."""
    assert links.is_mention is not None
    targets = links.is_mention.to(links.mention_scores.dtype)
    total = nn.functional.binary_cross_entropy_with_logits(links.mention_scores, targets, reduction="sum")
    return total / len(links.first)


def resolve(links: Links) -> list[list[tuple[int, int]]]:
    """The clusters that the best links form, as (first, last) tokens."""
    best = links.scores.argmax(dim=1)  # (M,), 0: none
    chosen = links.antecedents.gather(1, (best - 1).clamp(min=0)[:, None])[:, 0]  # (M,)
    linked = torch.where(best > 0, chosen, -1).tolist()
    spans = list(zip(links.first.tolist(), links.last.tolist(), strict=True))
    return [[spans[number] for number in cluster] for cluster in clusters_of(linked)]


def _select(values: Tensor, indices: Tensor) -> Tensor:
    """values[indices]; the gradient of index_select is a sum, that of indexing would sort."""
    selected: Tensor = torch.unflatten(values.index_select(0, indices.flatten()), 0, indices.shape)
    return selected


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
