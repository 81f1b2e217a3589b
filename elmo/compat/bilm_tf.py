"""bilm-tf's names as drop-in replacements without TensorFlow: Batcher, BidirectionalLanguageModel, weight_layers, ...

    from elmo.compat.bilm_tf import Batcher, BidirectionalLanguageModel, weight_layers     # was: from bilm import ...

It uses elmo.model. Names, arguments, shapes, ids and files are those of bilm-tf; a call computes at once, so the
placeholders, `tf.Session` and `sess.run` around it are deleted. `bilm(ids)` returns tensors, and `bilm.mixes` holds the
weights that `weight_layers` made. The LSTM state carries over from call to call in each batch row, as in bilm-tf, where
every placeholder has a state of its own: `bilm(ids, placeholder="question")` names it.

Intended differences: padding is zero in all layers; weight_layers of a name that is in use shares its weights, for
which bilm-tf needs `reuse=True`; "regularization_op" is a tensor; a word that a vocabulary without <UNK> does not have
is an error, not padding; the vocabulary file of a Batcher is not read, because no id depends on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from torch import Tensor, nn

from elmo.compat.allennlp_bilm import RowStates, distinct_token_vectors, read_parts, word_table
from elmo.devices import choose_device
from elmo.errors import ConfigError, DataError, WeightsError
from elmo.files import atomic_file
from elmo.model.mix import ScalarMix
from elmo.text.indexer import ByteIndexer, sentence_rows
from elmo.text.lines import read_lines
from elmo.text.vocab import BOS, EOS, UNK, read_words
from elmo.weights.hdf5 import read_dataset
from elmo.weights.model_parts import build


class Batcher:
    """Tokenised sentences to character ids (B, T+2, C) with boundaries; 0 is padding. <S> and </S> are boundaries."""

    def __init__(self, lm_vocab_file: str | Path | None, max_token_length: int) -> None:
        self._indexer = ByteIndexer(max_token_length, specials=True)

    def batch_sentences(self, sentences: Sequence[Sequence[str]]) -> np.ndarray:
        """The ids of a batch, int64; T is the length of the longest sentence."""
        _check_sentences(sentences)
        max_length = max(map(len, sentences), default=0) + 2
        ids = np.zeros((len(sentences), max_length, self._indexer.width), dtype=np.int64)  # (B, T+2, C)
        for row, sentence in enumerate(sentences):
            ids[row, : len(sentence) + 2] = sentence_rows(self._indexer, sentence)
        return ids


class TokenBatcher:
    """Tokenised sentences to the token ids (B, T+2) of a vocabulary file: line numbers counted from 1; 0 is padding."""

    def __init__(self, lm_vocab_file: str | Path) -> None:
        self._source = str(lm_vocab_file)
        self._ids = {word: number for number, word in enumerate(read_words(lm_vocab_file), start=1)}
        missing = [word for word in (BOS, EOS) if word not in self._ids]
        if missing:
            raise DataError(f"{lm_vocab_file}: {' and '.join(missing)} missing.", "Add one line for each.")

    def batch_sentences(self, sentences: Sequence[Sequence[str]]) -> np.ndarray:
        """The ids of a batch, int64; unknown words get the id of <UNK>."""
        _check_sentences(sentences)
        max_length = max(map(len, sentences), default=0) + 2
        ids = np.zeros((len(sentences), max_length), dtype=np.int64)  # (B, T+2)
        for row, sentence in enumerate(sentences):
            ids[row, : len(sentence) + 2] = [self._ids[BOS], *map(self._id, sentence), self._ids[EOS]]
        return ids

    def _id(self, word: str) -> int:
        number = self._ids.get(word) or self._ids.get(UNK)
        if number is None:
            raise DataError(
                f"{self._source} has neither {word!r} nor {UNK}.",
                "Add the word, and write the token embeddings again.",
            )
        return number


class BilmOps(dict[str, Tensor]):
    """What a BidirectionalLanguageModel returns, and the mixes of that model for `weight_layers`."""

    def __init__(self, tensors: dict[str, Tensor], mixes: nn.ModuleDict) -> None:
        super().__init__(tensors)
        self.mixes = mixes


class BidirectionalLanguageModel:
    """Ids from a Batcher, or from a TokenBatcher with use_character_inputs=False, to all layers of each token.

    `embedding_weight_file` is what `dump_token_embeddings` wrote. `mixes.parameters()` are for an optimizer.
    """

    def __init__(
        self,
        options_file: str | Path,
        weight_file: str | Path | None,  # None: options_file is the name or the folder of a model, as in `elmo.load`
        use_character_inputs: bool = True,
        embedding_weight_file: str | Path | None = None,
        max_batch_size: int = 128,
        *,
        device: str = "auto",
    ) -> None:
        parts = read_parts(options_file, weight_file)
        if use_character_inputs and (parts.config.chars is None or parts.lexicon is not None):
            raise ConfigError(f"{parts.source}: the model does not read bytes.", "Use elmo.load.")
        if not use_character_inputs and embedding_weight_file is None:
            raise ConfigError(
                "use_character_inputs=False needs an embedding_weight_file.", "See dump_token_embeddings."
            )
        self.bilm = build(parts).eval().requires_grad_(False).to(choose_device(device))
        self.mixes = nn.ModuleDict()
        self._max_batch_size = max_batch_size
        self._states: dict[str, RowStates] = {}
        self._table: Tensor | None = None
        if not use_character_inputs:
            assert embedding_weight_file is not None
            table = _read_table(Path(embedding_weight_file), self.bilm.config.lstm.proj_dim)
            self._table = torch.from_numpy(table).to(self._device)

    def __call__(self, ids: np.ndarray | Tensor, placeholder: str = "") -> BilmOps:
        """ "lm_embeddings" (B, L+1, T, D), "lengths" (B,) and "mask" (B, T) without boundaries; and
        "token_embeddings" (B, T+2, P) with them. Calls with one `placeholder` continue one state per row.
        """
        ids = torch.as_tensor(ids, device=self._device)
        depth = 3 if self._table is None else 2
        if ids.ndim != depth or ids.shape[1] < 2:
            raise DataError(f"ids have shape {tuple(ids.shape)}; expected {depth} axes, as batch_sentences makes them.")
        if len(ids) > self._max_batch_size:
            raise DataError(f"The batch has {len(ids)} sentences; max_batch_size is {self._max_batch_size}.")
        with torch.no_grad():
            tokens = self._token_layer(ids)  # (B, T+2, P)
            mask = ids > 0 if ids.ndim == 2 else (ids > 0).any(dim=-1)  # (B, T+2)
            config = self.bilm.config
            states = self._states.setdefault(placeholder, RowStates(config.lstm.num_layers, config.num_directions))
            output = self.bilm.contextualize(tokens, mask, states.start(self.bilm.zero_state(len(ids))))
            states.save(output.state)
        lengths = (mask.sum(dim=1) - 2).clamp(min=0)  # (B,)
        inside = torch.arange(mask.shape[1] - 2, device=self._device) < lengths[:, None]  # (B, T)
        layers = output.layers[:, :, 1:-1].transpose(0, 1) * inside[:, None, :, None]  # (B, L+1, T, D)
        tensors = {"lm_embeddings": layers, "lengths": lengths, "token_embeddings": tokens, "mask": inside}
        return BilmOps(tensors, self.mixes)

    def reset_states(self) -> None:
        """Starts all rows of all placeholders from zero, as a new `tf.Session` does."""
        self._states.clear()

    @property
    def _device(self) -> torch.device:
        return next(self.bilm.parameters()).device

    def _token_layer(self, ids: Tensor) -> Tensor:
        if self._table is not None:
            if ids.numel() and not (int(ids.min()) >= 0 and int(ids.max()) < len(self._table)):
                raise DataError(
                    f"ids are {int(ids.min())} to {int(ids.max())}; the token embeddings have 0 to "
                    f"{len(self._table) - 1}.",
                    "Use the vocabulary that the token embeddings were written for.",
                )
            return self._table[ids]
        chars = self.bilm.config.chars
        assert chars is not None
        if ids.shape[-1] != chars.max_chars:
            raise DataError(f"ids have {ids.shape[-1]} characters per token; the model reads {chars.max_chars}.")
        return distinct_token_vectors(self.bilm, ids)


def weight_layers(
    name: str,
    bilm_ops: BilmOps,
    l2_coef: float | None = None,
    use_top_only: bool = False,
    do_layer_norm: bool = False,
) -> dict[str, Tensor]:
    """{"weighted_op": the learned mix of the layers, (B, T, D), "regularization_op": its L2 penalty, ()}.

    The weights are created at the first call with this name and then shared: `bilm.mixes[name]`, an elmo.ScalarMix.
    """
    layers, mask = bilm_ops["lm_embeddings"].transpose(0, 1), bilm_ops["mask"]  # (L+1, B, T, D), (B, T)
    # bilm-tf does not normalise a top layer that is used alone
    norm = "batch" if do_layer_norm and not use_top_only else "none"
    if name not in bilm_ops.mixes:
        mix = ScalarMix(len(layers), layer_norm=norm, top_only=use_top_only, penalty=l2_coef or 0.0)
        bilm_ops.mixes[name] = mix.to(layers.device)
    shared: Any = bilm_ops.mixes[name]
    if (shared.layer_norm, shared.top_only, shared.penalty_weight) != (norm, use_top_only, l2_coef or 0.0):
        raise ConfigError(f"weight_layers({name!r}) was called with other settings before.", "Use another name.")
    return {"weighted_op": shared(layers, mask) * mask[:, :, None], "regularization_op": shared.penalty()}


def dump_token_embeddings(
    vocab_file: str | Path, options_file: str | Path, weight_file: str | Path | None, outfile: str | Path
) -> None:
    """Writes the token layer of every word of a vocabulary file: an HDF5 file with the dataset "embedding" (V, P)."""
    model = BidirectionalLanguageModel(options_file, weight_file)
    chars = model.bilm.config.chars
    assert chars is not None
    table = word_table(model.bilm, ByteIndexer(chars.max_chars, specials=True), read_words(vocab_file))
    with atomic_file(outfile) as partial, h5py.File(partial, "w") as file:
        file.create_dataset("embedding", data=table.cpu().numpy(), dtype="float32")


def dump_bilm_embeddings(
    vocab_file: str | Path | None,  # not read: no id of a character depends on it
    dataset_file: str | Path,
    options_file: str | Path,
    weight_file: str | Path | None,
    outfile: str | Path,
) -> None:
    """Writes all layers of lines of space-separated tokens: an HDF5 file with datasets "0", "1", ..., (L+1, n, D).

    As in bilm-tf, each line continues from the LSTM state of the line before it; `elmo embed` has other choices.
    """
    model = BidirectionalLanguageModel(options_file, weight_file)
    chars = model.bilm.config.chars
    assert chars is not None
    batcher = Batcher(vocab_file, chars.max_chars)
    with atomic_file(outfile) as partial, h5py.File(partial, "w") as file:
        for number, line in enumerate(read_lines(dataset_file)):
            layers = model(batcher.batch_sentences([line.split()]))["lm_embeddings"][0]  # (L+1, n, D)
            file.create_dataset(str(number), data=layers.cpu().numpy(), dtype="float32")


def _check_sentences(sentences: Sequence[Sequence[str]]) -> None:
    for number, sentence in enumerate([sentences] if isinstance(sentences, str) else sentences):
        if isinstance(sentence, str):
            raise TypeError(f"sentences[{number}] is the string {sentence[:40]!r}; expected a list of tokens.")


def _read_table(path: Path, width: int) -> np.ndarray:
    """The token vectors (1 + V, P) of a file that dump_token_embeddings wrote; row 0, padding, is zero."""
    table = read_dataset(path, "embedding")
    if table is None or table.ndim != 2 or table.shape[1] != width:
        seen = "no 'embedding'" if table is None else f"an 'embedding' of shape {table.shape}"
        raise WeightsError(
            f"{path} has {seen}; the model needs (V, {width}).", "Write it with dump_token_embeddings for this model."
        )
    return np.pad(table, ((1, 0), (0, 0)))
