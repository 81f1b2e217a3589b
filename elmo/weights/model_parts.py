"""ModelParts, the form in which readers return a model and writers take it, and the network built from it."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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

CHAR_SYMBOLS = ("<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>")
WORD_SYMBOLS = ("<oov>", "<pad>")
_OTHER_LEXICON = "It belongs to another model, or it is damaged."


@dataclass(frozen=True, kw_only=True)
class Lexicon:
    """Symbol -> number tables of models of the ELMoForManyLangs family, which read these numbers, not bytes."""

    chars: Mapping[str, int] | None
    words: Mapping[str, int] | None
    max_chars: int | None = None  # words are cut to max_chars - 2 characters before both lookups; None: by the config's


@dataclass(frozen=True, kw_only=True)
class ModelParts:
    """A stored model: its shape, its tensors under our names, and the data that belongs to them."""

    config: BiLMConfig
    tensors: dict[str, Tensor]
    vocab: tuple[str, ...] | None = None  # words of the softmax or of the word table, in the order of its rows
    word_counts: np.ndarray | None = None  # (V,) int64, of the words of `vocab` in the training text; None: unknown
    lexicon: Lexicon | None = None
    mixes: tuple[tuple[tuple[float, ...], float], ...] = ()  # (weights before the softmax, gamma) stored with it
    card: str = ""  # the model card, Markdown
    about: dict[str, Any] = field(default_factory=dict)  # its origin: format, source, name, tokenizer
    format: str = ""
    source: str = ""
    storage: str = ""  # number type in our own format: float32, float16, int8
    head_bits: int | None = None  # per weight of the softmax matrix in our own format; None: as `storage` says
    read_head: Callable[[], dict[str, Tensor]] | None = None  # reads the softmax's tensors if they are still on disk

    @property
    def tokenizer(self) -> str | None:
        """The tokenizer of the text the model was trained on; None: not recorded."""
        name = self.about.get("tokenizer")
        if name is not None and not isinstance(name, str):
            raise WeightsError(f"{self.source}: tokenizer is {name!r}; expected a name.", "Is the folder damaged?")
        return name


def build(parts: ModelParts, *, allow_nonfinite: bool = False) -> BiLM:
    """The network with exactly these tensors, not copied; missing, extra or misshapen tensors are errors."""
    check_finite(parts.tensors, parts.source, allow_nonfinite=allow_nonfinite)
    model, on_disk = check_tensors(parts)
    head = parts.config.head
    if head is not None and parts.read_head is not None:
        read_head = functools.partial(_read_checked_head, parts.read_head, on_disk, parts.source, allow_nonfinite)
        model.head = LazyHead(head.vocab_size, read_head)
    tensors = {n: t.float() for n, t in parts.tensors.items()}
    model.load_state_dict(tensors, strict=not on_disk and not (head and head.tied), assign=True)
    if head is not None and head.tied:
        model.tie()
    return model.eval()


def copy_tensors(parts: ModelParts) -> ModelParts:
    """The same parts with tensors of their own: a network made of them can be trained without a change to `parts`."""
    return replace(parts, tensors={name: tensor.clone() for name, tensor in parts.tensors.items()})


def check_tensors(parts: ModelParts) -> tuple[BiLM, dict[str, tuple[int, ...]]]:
    """Raises WeightsError for missing, extra or misshapen tensors.

    Returns the network without memory, on the meta device, and the shapes of the tensors that are still on disk.
    """
    with torch.device("meta"), _SkipInit():  # no memory and no initial values for weights that are replaced at once
        model = BiLM(parts.config)
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if parts.config.head is not None and parts.config.head.tied:
        del expected["head.weight"]  # it is the word table, which is stored once
    on_disk = {} if parts.read_head is None else {n: s for n, s in expected.items() if n.startswith("head.")}
    check_shapes(parts.tensors, {n: s for n, s in expected.items() if n not in on_disk}, parts.source)
    return model, on_disk


def check_shapes(tensors: Mapping[str, Tensor], expected: Mapping[str, tuple[int, ...]], source: str) -> None:
    """Raises WeightsError unless the tensors have exactly the expected names and shapes."""
    for name, expected_shape in expected.items():
        shape = tuple(tensors[name].shape) if name in tensors else None
        if shape != expected_shape:
            raise WeightsError(
                f"{source}: tensor {name!r} is {shape or 'missing'}; expected {expected_shape}.",
                "The file is damaged or its configuration belongs to another model.",
            )
    extra = sorted(set(tensors) - set(expected))
    if extra:
        raise WeightsError(f"{source}: unexpected tensors {', '.join(extra[:5])}.", "Is the configuration right?")


def _read_checked_head(
    read: Callable[[], dict[str, Tensor]], expected: Mapping[str, tuple[int, ...]], source: str, allow_nonfinite: bool
) -> tuple[Tensor, Tensor]:
    tensors = read()
    check_shapes(tensors, expected, source)
    check_finite(tensors, source, allow_nonfinite=allow_nonfinite)
    return tensors["head.weight"].float(), tensors["head.bias"].float()


def check_lexicon(lexicon: Lexicon, config: BiLMConfig, source: str) -> None:
    """Raises WeightsError unless the lexicon numbers rows of the tables that the model has, and of no others."""
    chars, words = config.chars, config.words
    for kind, table, num_rows, symbols in (
        ("characters", lexicon.chars, chars.num_chars if chars else None, CHAR_SYMBOLS),
        ("words", lexicon.words, words.num_words if words else None, WORD_SYMBOLS),
    ):
        if (table is None) != (num_rows is None):
            has, reads = ("no ", "reads") if table is None else ("", "does not read")
            raise WeightsError(f"{source}: the lexicon has {has}{kind}, but the model {reads} {kind}.", _OTHER_LEXICON)
        if table is not None and num_rows is not None:
            check_lexicon_table(table, num_rows, symbols, f"{source}: the lexicon of {kind}")
    if chars is not None and lexicon.max_chars not in (None, chars.max_chars):
        raise WeightsError(
            f"{source}: the lexicon cuts words for rows of {lexicon.max_chars} characters, the model reads "
            f"{chars.max_chars}.",
            _OTHER_LEXICON,
        )


def check_lexicon_table(table: Mapping[str, int], num_rows: int, symbols: Sequence[str], source: str) -> None:
    """Raises WeightsError unless the table has the symbols and numbers only the model's `num_rows` vectors."""
    for symbol in symbols:
        if symbol not in table:
            raise WeightsError(f"{source} has no {symbol}.", "Every ELMoForManyLangs lexicon has one.")
    lowest, highest = min(table.values()), max(table.values())
    if lowest < 0 or highest >= num_rows:
        number = f"numbers up to {highest}" if highest >= num_rows else f"has the number {lowest}"
        raise WeightsError(f"{source} {number}, the model has vectors for 0..{num_rows - 1}.", _OTHER_LEXICON)


class _SkipInit(TorchFunctionMode):
    """Skips torch.nn.init: it has no effect on the meta device, and its first call takes seconds for imports."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


def check_finite(tensors: Mapping[str, Tensor], source: str, *, allow_nonfinite: bool) -> None:
    """Raises WeightsError for NaN or infinity in weights; with allow_nonfinite, logs a warning instead."""
    for name, tensor in tensors.items():
        if _has_finite_sum(tensor):
            continue
        bad = int((~torch.isfinite(tensor)).sum())
        if not bad:
            continue
        message = f"{source}: {name!r} has {bad:,} values that are NaN or infinite."
        if not allow_nonfinite:
            raise WeightsError(
                message, "The training run diverged or the file is damaged. --allow-nonfinite accepts it."
            )
        log.warning(message)


def _has_finite_sum(tensor: Tensor) -> bool:
    """Whether one sum over the tensor is finite. False is no proof: finite values can overflow in the sum."""
    if tensor.dtype == torch.float32 and tensor.is_contiguous() and tensor.device.type == "cpu":
        flat = tensor.detach().numpy().ravel()
        with np.errstate(all="ignore"):
            return bool(np.isfinite(np.dot(flat, flat)))  # several times faster than torch's sum
    return bool(torch.isfinite(tensor.sum()))
