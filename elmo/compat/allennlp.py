"""AllenNLP's Elmo, ElmoTokenEmbedder and ScalarMix as drop-in replacements: change the import, and old code runs.

    from elmo.compat.allennlp import Elmo, ElmoEmbedder, ElmoTokenEmbedder, batch_to_ids

The names and shapes are those of AllenNLP 0.9 and 2.10. The classes are stateful as in AllenNLP: each row of a batch
starts from the LSTM state in which the previous call left that row, in training and in evaluation, so the same sentence
gets other vectors the second time. `elmo._elmo_lstm._elmo_lstm.stateful = False` turns this off, and
`elmo._elmo_lstm._elmo_lstm.reset_states()` resets the state once. New code should use `elmo.load`.

Intended differences: masks are bool as in 2.x; a flat list of words instead of a list of sentences is an error, not a
batch of letters; models without skip connections can be read; sentence boundaries can be returned for inputs of any
depth; word ids outside the cached vocabulary are detected by a check, not by an exception; lone surrogates become
U+FFFD and are not dropped; nothing is downloaded.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from elmo.compat.allennlp_bilm import _ElmoBiLm, batch_to_ids
from elmo.compat.allennlp_embedder import ElmoEmbedder
from elmo.compat.allennlp_indexer import ELMoCharacterMapper, ELMoTokenCharactersIndexer
from elmo.compat.allennlp_mix import ScalarMix
from elmo.errors import ConfigError

__all__ = [
    "ELMoCharacterMapper",
    "ELMoTokenCharactersIndexer",
    "Elmo",
    "ElmoEmbedder",
    "ElmoTokenEmbedder",
    "ScalarMix",
    "_ElmoBiLm",
    "batch_to_ids",
]

log = logging.getLogger(__name__)


class Elmo(nn.Module):
    """Character ids to one or more learned mixes of the biLM's layers.

    `options_file` and `weight_file` are paths, or URLs of published models, whose files must be on this machine. One of
    them may also be the name or the folder of any model that `elmo.load` takes; the other is then None.
    `vocab_to_cache` is a list of words whose token layer is precomputed; a word's position in it is its id in
    `word_inputs`, and position 0 is padding. `module` replaces the biLM: it must have `num_layers` and return
    activations and a mask.
    """

    def __init__(
        self,
        options_file: str | None,
        weight_file: str | None = None,
        num_output_representations: int = 1,
        requires_grad: bool = False,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        vocab_to_cache: list[str] | None = None,
        keep_sentence_boundaries: bool = False,
        scalar_mix_parameters: Sequence[float] | None = None,  # before the softmax; if set, they are not trained
        module: nn.Module | None = None,
    ) -> None:
        super().__init__()
        if module is not None and (options_file is not None or weight_file is not None):
            raise ConfigError("Elmo got both a module and files to load one from.", "Pass None for both files.")
        self._elmo_lstm: Any = module
        if module is None:
            self._elmo_lstm = _ElmoBiLm(options_file, weight_file, requires_grad, vocab_to_cache)
        self._has_cached_vocab = vocab_to_cache is not None
        self._keep_sentence_boundaries = keep_sentence_boundaries
        self._dropout = nn.Dropout(dropout)
        self._num_mixes = num_output_representations
        for k in range(num_output_representations):
            trainable = scalar_mix_parameters is None
            mix = ScalarMix(self._elmo_lstm.num_layers, do_layer_norm, scalar_mix_parameters, trainable)
            self.add_module(f"scalar_mix_{k}", mix)

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> Elmo:
        """An Elmo from a dict of arguments, as in a configuration file."""
        return cls(**{key: value for key, value in params.items() if key != "type"})

    @property
    def _scalar_mixes(self) -> list[ScalarMix]:
        return [getattr(self, f"scalar_mix_{k}") for k in range(self._num_mixes)]

    def get_output_dim(self) -> int:
        """Width D of a vector."""
        return int(self._elmo_lstm.get_output_dim())

    def get_lstm(self) -> nn.Module:
        """The biLM."""
        lstm: nn.Module = self._elmo_lstm
        return lstm

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> dict[str, Any]:
        """inputs (B, ..., T, 50), as `batch_to_ids` makes them; word_inputs (B, ..., T) with a cached vocabulary.

        Returns "elmo_representations", a list of (B, ..., T, D), zero at padding, and "mask" (B, ..., T), bool. With
        keep_sentence_boundaries, T is larger by two.
        """
        if word_inputs is not None and not self._has_cached_vocab:
            log.warning("word_inputs are ignored: this Elmo has no cached vocabulary.")
            word_inputs = None
        if not isinstance(inputs, Tensor):
            raise TypeError(
                f"inputs is a {type(inputs).__name__}; expected character ids, a tensor (B, T, 50). "
                "batch_to_ids makes them of tokenised sentences."
            )
        outer_shape = inputs.shape[:-2]
        words = None if word_inputs is None else word_inputs.flatten(0, -2)  # (B, T)
        output = self._elmo_lstm(inputs.flatten(0, -3), words)
        layers, mask = output["activations"], output["mask"]  # each (B, T+2, D); (B, T+2)
        mixed = [mix(layers, mask) for mix in self._scalar_mixes]
        if not self._keep_sentence_boundaries:
            # after the mix, because the statistics of a layer norm include the boundaries
            mask, mixed = _without_boundaries(mask, mixed)
        mixed = [self._dropout(vectors) for vectors in mixed]
        shape = (*outer_shape, mask.shape[-1])
        return {
            "elmo_representations": [vectors.reshape(*shape, vectors.shape[-1]) for vectors in mixed],
            "mask": mask.reshape(shape),
        }


class ElmoTokenEmbedder(nn.Module):
    """One mix of layers, (B, ..., T, 50) to (B, ..., T, D), projected if `projection_dim` is given."""

    def __init__(
        self,
        options_file: str | None = None,
        weight_file: str | None = None,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        requires_grad: bool = False,
        projection_dim: int | None = None,
        vocab_to_cache: list[str] | None = None,
        scalar_mix_parameters: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        self._elmo = Elmo(
            options_file,
            weight_file,
            1,
            requires_grad=requires_grad,
            do_layer_norm=do_layer_norm,
            dropout=dropout,
            vocab_to_cache=vocab_to_cache,
            scalar_mix_parameters=scalar_mix_parameters,
        )
        self._projection = nn.Linear(self._elmo.get_output_dim(), projection_dim) if projection_dim else None
        self.output_dim = projection_dim or self._elmo.get_output_dim()

    @classmethod
    def from_params(
        cls, *positional: Any, params: Mapping[str, Any] | None = None, vocab: Any = None
    ) -> ElmoTokenEmbedder:
        """An ElmoTokenEmbedder from a dict of arguments, as in a configuration file.

        Called with (vocab, params) as in AllenNLP 0.9, with (params) as in 2.x, or with names. "namespace_to_cache"
        in the dict names the words of `vocab` whose token layer is precomputed.
        """
        if len(positional) == 2:
            vocab, params = positional
        elif positional:
            (params,) = positional
        if params is None:
            raise TypeError("from_params got no params.")
        arguments = {key: value for key, value in params.items() if key not in ("type", "namespace_to_cache")}
        namespace = params.get("namespace_to_cache")
        if namespace is not None:
            if vocab is None:
                raise ConfigError(f"namespace_to_cache is {namespace!r}, but no vocabulary was passed.", "Pass vocab.")
            arguments["vocab_to_cache"] = list(vocab.get_token_to_index_vocabulary(namespace))
        return cls(**arguments)

    def get_output_dim(self) -> int:
        """Width of a vector, after the projection if there is one."""
        return self.output_dim

    def forward(self, elmo_tokens: Tensor, word_inputs: Tensor | None = None) -> Tensor:
        vectors: Tensor = self._elmo(elmo_tokens, word_inputs)["elmo_representations"][0]
        return vectors if self._projection is None else self._projection(vectors)


def _without_boundaries(mask: Tensor, mixed: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Mask (B, T) and vectors (B, T, D) without the boundaries of (B, T+2, ...), zero at padding."""
    lengths = mask.sum(dim=1) - 2  # (B,)
    inside = torch.arange(mask.shape[1] - 2, device=mask.device) < lengths[:, None]  # (B, T)
    return inside, [torch.where(inside[:, :, None], vectors[:, 1:-1], 0.0) for vectors in mixed]
