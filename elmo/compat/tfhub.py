"""TF-Hub's ELMo module (google/elmo/1 to /3) as a drop-in replacement without TensorFlow: change the import.

    from elmo.compat import tfhub as hub                        # was: import tensorflow_hub as hub
    module = hub.Module("https://tfhub.dev/google/elmo/3", trainable=True)
    module(["the cat is on the mat"], signature="default", as_dict=True)["elmo"]     # numpy (B, T, D)

It uses elmo.embed. The documentation of the module gives the two signatures, the five outputs and their shapes, the
split on spaces and the four trainable scalars; maintainers say in tensorflow/hub issue 240 that "default" is the mean
without padding, and the log in issue 88 has the names of the scalars. All of this is the same here.

What TF-Hub does in these points could not be verified, because its files cannot be read here: whether its weights equal
those of `original`, which the URL loads and which has the same size and training text; whether its LSTM state carries
over from call to call (here each sentence starts from zero, so a batch does not change a sentence's vectors); whether
a softmax is applied to the three weights, as in the paper and here; whether "default" uses trained weights (here it is
the mean of "elmo"). Intended differences: padding is zero in all outputs, and the mean of a sentence without tokens is
zero, not NaN; version 1's trainable LSTM cells are not offered; the undocumented output "sequence_len" is left out.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from elmo.embed.load import load as load_embedder
from elmo.errors import ConfigError, DataError
from elmo.model.mix import ScalarMix

log = logging.getLogger(__name__)

SIGNATURES = ("default", "tokens")
GOOGLE_MODULE = re.compile(r"https?://(tfhub\.dev/google|(www\.)?kaggle\.com/models/google)/elmo\b")
STAND_IN = "original"  # the published model with the size and the training text of Google's module


class Module(nn.Module):
    """Strings or padded tokens to a dict of arrays; its only parameters are the mix's three weights and its scale.

    `spec` is the URL of Google's module, or any model that `elmo.load` takes. With output="torch", the results are
    tensors on the model's device, and a loss on "elmo" or "default" trains the four scalars.
    """

    def __init__(
        self,
        spec: str | Path,
        trainable: bool = False,
        name: str = "module",
        *,
        output: str = "numpy",  # numpy, torch
        device: str = "auto",
    ) -> None:
        super().__init__()
        if output not in ("numpy", "torch"):
            raise ConfigError(f"output is {output!r}; expected numpy or torch.")
        self.name, self._output = name, output
        self.embedder = load_embedder(_model_name(spec), device=device)
        self.mix = ScalarMix(self.embedder.num_layers).requires_grad_(trainable)
        self.mix.to(self.embedder.device)

    @property
    def layer_weights(self) -> np.ndarray:
        """The weight of each layer after the softmax, (L+1,): word_emb, lstm_outputs1, lstm_outputs2."""
        weights: np.ndarray = self.mix.layer_weights().detach().cpu().numpy()
        return weights

    @property
    def scale(self) -> float:
        """The factor of the weighted sum: gamma of the paper, the variable "aggregation/scaling" of TF-Hub."""
        return float(self.mix.gamma.detach())

    @property
    def variable_map(self) -> dict[str, Tensor]:
        """The four scalars under TF-Hub's names; the weights are those before the softmax."""
        assert self.mix.weights is not None
        return {"aggregation/weights": self.mix.weights, "aggregation/scaling": self.mix.gamma}

    @property
    def variables(self) -> list[Tensor]:
        """The four scalars as two parameters: the weights (L+1,) before the softmax, and the scale."""
        return list(self.variable_map.values())

    @property
    def trainable_variables(self) -> list[Tensor]:
        """The variables that an optimizer changes: none unless the module is trainable."""
        return [variable for variable in self.variables if variable.requires_grad]

    @property
    def signatures(self) -> dict[str, Callable[..., dict[str, Any]]]:
        """A function per signature, as on the object that TensorFlow 2's `hub.load` returns."""
        return {"default": self._call_default, "tokens": self._call_tokens}

    def forward(self, inputs: Any, signature: str = "default", as_dict: bool = False) -> Any:
        """The outputs as a dict, or "default" (B, D) alone if `as_dict` is false, as in TF-Hub.

        inputs are strings (B,) for "default"; for "tokens" {"tokens": (B, T), "sequence_len": (B,)}. Outputs:
        "word_emb" (B, T, P), "lstm_outputs1" and "lstm_outputs2" (B, T, D), "elmo" (B, T, D), "default" (B, D).
        """
        if signature not in SIGNATURES:
            raise ConfigError(f"signature is {signature!r}; expected one of {', '.join(SIGNATURES)}.")
        if signature == "tokens":
            sentences, max_length = _padded_tokens(inputs)
        else:
            sentences = [_split_on_spaces(text) for text in _strings(inputs)]
            max_length = max(map(len, sentences), default=0)
        outputs = self._outputs(sentences, max_length)
        if self._output == "numpy":
            arrays = {key: tensor.detach().cpu().numpy() for key, tensor in outputs.items()}
            return arrays if as_dict else arrays["default"]
        return outputs if as_dict else outputs["default"]

    def _call_default(self, strings: Any) -> dict[str, Any]:
        outputs: dict[str, Any] = self(strings, signature="default", as_dict=True)
        return outputs

    def _call_tokens(self, *, tokens: Any, sequence_len: Any) -> dict[str, Any]:
        inputs = {"tokens": tokens, "sequence_len": sequence_len}
        outputs: dict[str, Any] = self(inputs, signature="tokens", as_dict=True)
        return outputs

    def _outputs(self, sentences: Sequence[Sequence[str]], max_length: int) -> dict[str, Tensor]:
        embedder, B = self.embedder, len(sentences)
        shape = (embedder.num_layers, B, max_length, embedder.dim)
        layers = torch.zeros(shape, dtype=torch.float32, device=embedder.device)  # (L+1, B, T, D)
        for row, vectors in enumerate(embedder.stream(sentences, layers="all", output="torch")):
            layers[:, row, : vectors.shape[1]] = vectors
        lengths = torch.tensor([len(sentence) for sentence in sentences], device=embedder.device)  # (B,)
        mixed = self.mix(layers)  # (B, T, D)
        outputs = {"word_emb": layers[0, ..., : embedder.model.config.lstm.proj_dim]}  # the same in both directions
        outputs |= {f"lstm_outputs{k}": layers[k] for k in range(1, len(layers))}
        outputs["elmo"] = mixed
        outputs["default"] = mixed.sum(dim=1) / lengths.clamp(min=1)[:, None]  # padding is zero and adds nothing
        return outputs


def load(handle: str | Path, *, output: str = "numpy", device: str = "auto") -> Module:
    """The module for TensorFlow 2's way of calling it: `load(handle).signatures["default"](texts)["elmo"]`."""
    return Module(handle, output=output, device=device)


def _model_name(spec: str | Path) -> str | Path:
    if isinstance(spec, Path) or "://" not in spec:
        return spec
    if not GOOGLE_MODULE.match(spec):
        raise ConfigError(f"{spec} is not the URL of Google's ELMo module.", "Pass a model's name, folder or file.")
    log.warning(
        "%s: TF-Hub modules cannot be read; the published model %r, which has the same size and training text, is "
        "used instead, and its vectors may differ from the module's.",
        spec,
        STAND_IN,
    )
    return STAND_IN


def _split_on_spaces(text: str) -> list[str]:
    return [token for token in text.split(" ") if token]  # tabs and line ends are part of a token, as in TF-Hub


def _strings(inputs: Any) -> list[str]:
    """The sentences of the signature "default": strings or UTF-8 bytes in a list, an array or a TensorFlow tensor."""
    if isinstance(inputs, Mapping):
        if len(inputs) != 1:
            raise DataError(f"The signature 'default' has one input; it got {', '.join(map(str, inputs))}.")
        (inputs,) = inputs.values()
    array = _array(inputs)
    if array.ndim != 1:
        raise DataError(
            f"The signature 'default' expects a list of strings; it got an input of shape {array.shape}.",
            "Pass [text] for one text, and signature='tokens' for texts that are split into tokens.",
        )
    return [_text(item, f"inputs[{row}]") for row, item in enumerate(array)]


def _padded_tokens(inputs: Any) -> tuple[list[list[str]], int]:
    """The sentences of the signature "tokens" without their padding, and the padded length T."""
    if not isinstance(inputs, Mapping) or set(inputs) != {"tokens", "sequence_len"}:
        seen = ", ".join(map(str, inputs)) if isinstance(inputs, Mapping) else type(inputs).__name__
        raise DataError(f"The signature 'tokens' expects a dict with 'tokens' and 'sequence_len'; it got {seen}.")
    tokens, lengths = _array(inputs["tokens"]), np.asarray(inputs["sequence_len"])
    if tokens.ndim != 2 and len(tokens):
        raise DataError(
            f"tokens has shape {tokens.shape}; expected sentences of one length, (B, T).",
            "Pad the shorter sentences with '' and pass their lengths as sequence_len.",
        )
    if lengths.shape != tokens.shape[:1] or (lengths.size and lengths.dtype.kind not in "iu"):
        raise DataError(
            f"sequence_len has shape {lengths.shape} and type {lengths.dtype}; expected {len(tokens)} integers, one "
            "per sentence."
        )
    max_length = tokens.shape[1] if tokens.ndim == 2 else 0
    if lengths.size and not (lengths.min() >= 0 and lengths.max() <= max_length):
        raise DataError(f"sequence_len has {lengths.min()} to {lengths.max()}; expected 0 to {max_length}, the width.")
    sentences = [
        [_text(item, f"tokens[{row}][{k}]") for k, item in enumerate(tokens[row, :length])]
        for row, length in enumerate(lengths.tolist())
    ]
    return sentences, max_length


def _array(inputs: Any) -> np.ndarray:
    """The input as an array of objects; a list of lists of different lengths is one of lists."""
    inputs = inputs.numpy() if hasattr(inputs, "numpy") else inputs  # a tensor of TensorFlow
    try:
        return np.asarray(inputs, dtype=object)
    except ValueError:  # numpy's, for some lists of unequal depth
        return np.fromiter(inputs, dtype=object)


def _text(item: object, where: str) -> str:
    if isinstance(item, bytes):
        try:
            return item.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"{where} is not UTF-8: {error}.") from error
    if not isinstance(item, str):
        raise DataError(f"{where} is {type(item).__name__}; expected a string.")
    return str(item)
