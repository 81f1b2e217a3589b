"""A softmax that stays on disk until somebody scores with it.

Vectors need no softmax, and it is half of a small model: `build` puts this in its place where the parts say so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from elmo.model.head import SoftmaxHead


class LazyHead(SoftmaxHead):
    """A SoftmaxHead that reads its rows, frozen, when one is first looked at, and is a plain one from then on."""

    def __init__(self, vocab_size: int, read: Callable[[], tuple[Tensor, Tensor]]) -> None:
        nn.Module.__init__(self)  # not SoftmaxHead's: no rows are made here
        self._vocab_size = vocab_size
        self._read: Callable[[], tuple[Tensor, Tensor]] | None = read
        self._moves: list[Callable[[Tensor], Tensor]] = []  # to a device or dtype, before there was anything to move

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    @property
    def is_read(self) -> bool:
        return self._read is None

    def fill(self) -> None:
        """Reads the rows now, to where the model has been moved by now."""
        read = self._read
        if read is None:
            return
        with torch.inference_mode(False):  # whoever looks first: the rows may be learned from later
            weight, bias = read()
            for move in self._moves:
                weight, bias = move(weight), move(bias)
            # not by attribute, which would first look whether there is one; frozen, as an embedder's model is
            self._parameters["weight"] = nn.Parameter(weight, requires_grad=False)
            self._parameters["bias"] = nn.Parameter(bias, requires_grad=False)
        self._read = None  # last: a second thread that comes in between reads the same rows once more, no harm done
        self._moves = []  # they cannot be pickled

    def __getattr__(self, name: str) -> Any:
        if name in ("weight", "bias") and self.__dict__.get("_read") is not None:
            self.fill()
        return super().__getattr__(name)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *settings: Any) -> None:
        if prefix + "weight" in state_dict:  # `build` loads the rest of a model and leaves this out
            self.fill()
        super()._load_from_state_dict(state_dict, prefix, *settings)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        if self._read is not None:
            self._moves.append(fn)
            return self
        return super()._apply(fn, recurse)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        self.fill()
        super()._save_to_state_dict(destination, prefix, keep_vars)

    def __getstate__(self) -> dict[str, Any]:
        self.fill()  # a copy in another process may not find the file
        return self.__dict__
