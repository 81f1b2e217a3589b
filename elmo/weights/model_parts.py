"""What every reader gives and every writer takes: a model as plain parts, before or after it is a network."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from elmo.errors import WeightsError
from elmo.model.bilm import BiLM
from elmo.model.config import BiLMConfig
from elmo.weights.lazy_head import LazyHead

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
    storage: str = ""  # how our own folder held the numbers: float32, float16, int8
    read_head: Callable[[], dict[str, Tensor]] | None = None  # the softmax's tensors, where they were left on disk


def build(parts: ModelParts, *, allow_nonfinite: bool = False) -> BiLM:
    """The network with exactly these tensors, which it takes over; missing, extra or misshapen ones are errors."""
    check_finite(parts.tensors, parts.source, allow_nonfinite=allow_nonfinite)
    with torch.device("meta"), _Unfilled():  # no memory and no random start for weights that are replaced at once
        model = BiLM(parts.config)
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    head = parts.config.head
    if head is not None and head.tied:
        del expected["head.weight"]  # it is the word table, stored once
    later = {} if parts.read_head is None else {n: s for n, s in expected.items() if n.startswith("head.")}
    check_shapes(parts.tensors, {n: s for n, s in expected.items() if n not in later}, parts.source)
    if head is not None and parts.read_head is not None:
        rows = functools.partial(_head_rows, parts.read_head, later, parts.source, allow_nonfinite)
        model.head = LazyHead(head.vocab_size, rows)
    tensors = {n: t.float() for n, t in parts.tensors.items()}
    model.load_state_dict(tensors, strict=not later and not (head and head.tied), assign=True)
    if head is not None and head.tied:
        model.tie()
    return model.eval()


def check_shapes(tensors: Mapping[str, Tensor], expected: Mapping[str, tuple[int, ...]], source: str) -> None:
    """The tensors are those a network wants, no more and no less."""
    for name, shape in expected.items():
        seen = tuple(tensors[name].shape) if name in tensors else None
        if seen != shape:
            raise WeightsError(
                f"{source}: tensor {name!r} is {seen or 'missing'}; expected {shape}.",
                "The file is damaged or its configuration is another model's.",
            )
    extra = sorted(set(tensors) - set(expected))
    if extra:
        raise WeightsError(f"{source}: unexpected tensors {', '.join(extra[:5])}.", "Is the configuration right?")


def _head_rows(
    read: Callable[[], dict[str, Tensor]], expected: Mapping[str, tuple[int, ...]], source: str, allow_nonfinite: bool
) -> tuple[Tensor, Tensor]:
    tensors = read()
    check_shapes(tensors, expected, source)
    check_finite(tensors, source, allow_nonfinite=allow_nonfinite)
    return tensors["head.weight"].float(), tensors["head.bias"].float()


class _Unfilled(TorchFunctionMode):
    """Leaves out torch.nn.init's functions: on the meta device they only cost, the first seconds of imports."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


def check_finite(tensors: Mapping[str, Tensor], source: str, *, allow_nonfinite: bool) -> None:
    """Refuses NaN and infinity in weights, or warns where they were asked for."""
    for name, tensor in tensors.items():
        if _surely_finite(tensor):
            continue
        bad = int((~torch.isfinite(tensor)).sum())
        if not bad:
            continue
        message = f"{source}: {name!r} has {bad:,} values that are NaN or infinite."
        if not allow_nonfinite:
            raise WeightsError(message, "The training run diverged or the file is damaged; --allow-nonfinite loads it.")
        log.warning(message)


def _surely_finite(tensor: Tensor) -> bool:
    """One pass and no mask: a NaN or an infinity survives a sum. An overflow does too: False means, look closer."""
    if tensor.dtype == torch.float32 and tensor.is_contiguous() and tensor.device.type == "cpu":
        flat = tensor.detach().numpy().ravel()
        with np.errstate(all="ignore"):
            return bool(np.isfinite(np.dot(flat, flat)))  # several times quicker than torch's sum
    return bool(torch.isfinite(tensor.sum()))
