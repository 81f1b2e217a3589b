"""What every reader gives and every writer takes: a model as plain parts, before or after it is a network."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from elmo.errors import WeightsError
from elmo.model.bilm import BiLM
from elmo.model.config import BiLMConfig

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Lexicon:
    """Symbols a model of the ELMoForManyLangs family reads by number, instead of bytes."""

    chars: Mapping[str, int] | None
    words: Mapping[str, int] | None


@dataclass(frozen=True, kw_only=True)
class ModelParts:
    """A stored model: its shape, its tensors under our names, and what belongs to them."""

    config: BiLMConfig
    tensors: dict[str, Tensor]
    vocab: tuple[str, ...] | None = None  # words of the softmax or of the word table, by line
    lexicon: Lexicon | None = None
    mixes: tuple[tuple[tuple[float, ...], float], ...] = ()  # (weights before the softmax, gamma) found beside it
    card: str = ""  # the model card, Markdown
    about: dict[str, Any] = field(default_factory=dict)  # where it came from: format, source, name
    format: str = ""
    source: str = ""


def build(parts: ModelParts, *, allow_nonfinite: bool = False) -> BiLM:
    """The network with exactly these tensors, which it takes over; missing, extra or misshapen ones are errors."""
    check_finite(parts, allow_nonfinite=allow_nonfinite)
    with torch.device("meta"):  # no memory and no random start for weights that are replaced at once
        model = BiLM(parts.config)
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    tied = parts.config.head is not None and parts.config.head.tied
    if tied:
        del expected["head.weight"]  # it is the word table, stored once
    for name, shape in expected.items():
        seen = tuple(parts.tensors[name].shape) if name in parts.tensors else None
        if seen != shape:
            raise WeightsError(
                f"{parts.source}: tensor {name!r} is {seen or 'missing'}; expected {shape}.",
                "The file is damaged or its configuration is another model's.",
            )
    extra = sorted(set(parts.tensors) - set(expected))
    if extra:
        raise WeightsError(f"{parts.source}: unexpected tensors {', '.join(extra[:5])}.", "Is the configuration right?")
    model.load_state_dict({n: t.float() for n, t in parts.tensors.items()}, strict=not tied, assign=True)
    if tied:
        model.tie()
    return model.eval()


def check_finite(parts: ModelParts, *, allow_nonfinite: bool) -> None:
    """Refuses NaN and infinity in weights, or warns where they were asked for."""
    for name, tensor in parts.tensors.items():
        if bool(torch.isfinite(tensor.sum())):  # one pass and no mask; a NaN or an infinity survives a sum
            continue
        bad = int((~torch.isfinite(tensor)).sum())
        if not bad:
            continue
        message = f"{parts.source}: {name!r} has {bad:,} values that are NaN or infinite."
        if not allow_nonfinite:
            raise WeightsError(message, "The training run diverged or the file is damaged; --allow-nonfinite loads it.")
        log.warning(message)
