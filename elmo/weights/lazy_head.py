"""LazyHead, a softmax layer that is read from disk when it is first used.

Embedding needs no softmax, and the softmax is half of a small model. `build` uses this class if the parts have a
`read_head`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from elmo.model.head import SoftmaxHead


class LazyHead(SoftmaxHead):
    """A SoftmaxHead that reads its weights, frozen, at the first access and is an ordinary SoftmaxHead afterwards."""

    def __init__(self, vocab_size: int, read: Callable[[], tuple[Tensor, Tensor]]) -> None:
        nn.Module.__init__(self)  # not SoftmaxHead's, which would allocate the weights
        self._vocab_size = vocab_size
        self._read: Callable[[], tuple[Tensor, Tensor]] | None = read
        self._moves: list[
            Callable[[Tensor], Tensor]
        ] = []  # conversions (device, dtype) to apply once the weights are read

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    @property
    def is_read(self) -> bool:
        return self._read is None

    def fill(self) -> None:
        """Reads the weights now, to the device and dtype that the model has now."""
        read = self._read
        if read is None:
            return
        with torch.inference_mode(False):  # the first access may be in inference mode; later ones may train
            weight, bias = read()
            for move in self._moves:
                weight, bias = move(weight), move(bias)
            # not by setattr, which would read the old attribute first; frozen, as all weights of an embedder are
            self._parameters["weight"] = nn.Parameter(weight, requires_grad=False)
            self._parameters["bias"] = nn.Parameter(bias, requires_grad=False)
        self._read = None  # last: a second thread may read the same weights again, which does no harm
        self._moves = []  # functions, which cannot be pickled

    def __getattr__(self, name: str) -> Any:
        if name in ("weight", "bias") and self.__dict__.get("_read") is not None:
            self.fill()
        return super().__getattr__(name)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *settings: Any) -> None:
        if prefix + "weight" in state_dict:  # `build` loads a state dict without the head
            self.fill()
        super()._load_from_state_dict(state_dict, prefix, *settings)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        if self._read is not None:
            self._moves.append(fn)
            return self
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call, unused-ignore]  # torch's

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        self.fill()
        super()._save_to_state_dict(destination, prefix, keep_vars)

    def __getstate__(self) -> dict[str, Any]:
        self.fill()  # another process may not have the file
        return self.__dict__
