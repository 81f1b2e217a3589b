"""ElmoModule: a biLM and its mix of layers as the first module of a SentenceTransformer.

    elmo_module = ElmoModule("english")
    model = SentenceTransformer(modules=[elmo_module, Pooling(elmo_module.get_embedding_dimension())])

Before training, the mix is the mean of the layers, so that `model.encode` gives the vectors of `Embedder.encode`. The
features of a batch are tensors (character ids and a mask), as the library's data loaders, losses and process pools
expect. A saved model is loaded with trust_remote_code=True, because sentence-transformers asks for it for every module
that is not its own.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from elmo.embed.load import make_indexer, module_parts
from elmo.embed.trained_layers import trained_layers
from elmo.errors import ConfigError, WeightsError
from elmo.files import require_extra
from elmo.model.bilm import BiLM
from elmo.model.mix import ScalarMix
from elmo.settings import whole_number
from elmo.text.batch import make_batch
from elmo.text.inputs import normalize_input
from elmo.text.tokenizer_function import TokenizerFunction, choose_tokenizer, make_tokenizer
from elmo.weights.model_parts import ModelParts, build
from elmo.weights.store import save_store

require_extra("sentence_transformers", "sentence-transformers", "sentence-transformers")

try:
    from sentence_transformers.base.modules import InputModule
except ImportError:  # sentence-transformers 5
    from sentence_transformers.models import InputModule

_BILM, _SETTINGS, _MIX = "bilm", "elmo_module.json", "mix.safetensors"  # of a saved module


class ElmoModule(InputModule):
    """Texts to `token_embeddings` (B, T, D) and `attention_mask` (B, T), without sentence boundaries.

    Each sentence starts from the zero state. Training changes the mix; with `requires_grad`, the biLM as well.
    """

    save_in_root = False

    def __init__(
        self,
        model: str | Path | ModelParts = "default",  # whatever `elmo.load` takes, or a model that is read already
        *,
        requires_grad: bool = False,  # True: the biLM is trained too
        layer_norm: str = "none",  # of the mix: none, batch, token
        top_only: bool = False,
        dropout: float = 0.0,
        tokenizer: str | TokenizerFunction | None = None,  # None: the model's own, or else default
        max_seq_length: int | None = None,  # tokens; longer texts are cut
    ) -> None:
        super().__init__()
        if max_seq_length is not None and (whole_number(max_seq_length) or 0) < 1:
            raise ConfigError(f"max_seq_length is {max_seq_length!r}; expected a whole number of at least 1, or None.")
        parts = dataclasses.replace(module_parts(model), read_head=None)
        self.bilm: BiLM = build(parts).train().requires_grad_(requires_grad)
        self.mix = ScalarMix(parts.config.num_layers, layer_norm=layer_norm, top_only=top_only, dropout=dropout)
        self.max_seq_length = max_seq_length
        self._parts = dataclasses.replace(parts, tensors={})  # all but the weights, which training may change
        self._indexer = make_indexer(parts)
        self._tokenizer = choose_tokenizer(parts.tokenizer, tokenizer) or "default"
        self._tokenize = make_tokenizer(self._tokenizer)

    def get_embedding_dimension(self) -> int:
        """Width D of a vector."""
        return self.bilm.config.dim

    def get_word_embedding_dimension(self) -> int:
        """The same under the name that sentence-transformers 5 uses."""
        return self.get_embedding_dimension()

    def preprocess(self, inputs: Sequence[str], prompt: str | None = None, **options: Any) -> dict[str, Tensor]:
        """Character ids (B, T + 2, W) with sentence boundaries, and the mask (B, T) of the tokens."""
        del options  # of other modalities and tasks
        texts = [(prompt or "") + text if isinstance(text, str) else text for text in inputs]
        sentences = [tokens[: self.max_seq_length] for tokens in normalize_input(texts, self._tokenize).sentences]
        ids = torch.from_numpy(make_batch(sentences, self._indexer).ids).long()  # (B, T + 2, W)
        lengths = torch.tensor([len(tokens) for tokens in sentences])  # (B,)
        mask = torch.arange(ids.shape[1] - 2) < lengths[:, None]  # (B, T)
        return {"input_ids": ids, "attention_mask": mask.long()}

    def tokenize(self, texts: Sequence[str], **options: Any) -> dict[str, Tensor]:
        """`preprocess` under the name that sentence-transformers 5 uses."""
        return self.preprocess(texts, **options)

    def forward(self, features: dict[str, Any], **options: Any) -> dict[str, Any]:
        """Adds `token_embeddings` (B, T, D), zero at padding."""
        del options
        ids, mask = features["input_ids"], features["attention_mask"].bool()  # (B, T + 2, W), (B, T)
        is_trained = torch.is_grad_enabled() and any(parameter.requires_grad for parameter in self.bilm.parameters())
        with torch.set_grad_enabled(is_trained):
            layers = trained_layers(self.bilm, ids)[:, :, 1:-1]  # (L+1, B, T, D)
        features["token_embeddings"] = self.mix(layers * mask[None, :, :, None], mask) * mask[:, :, None]
        return features

    def save(self, output_path: str, *arguments: Any, **options: Any) -> None:
        """Writes the biLM as a model folder of this package, the mix, and the settings."""
        del arguments, options
        if not isinstance(self._tokenizer, str):
            raise ConfigError("The tokenizer is a function, which cannot be saved.", "Use a tokenizer with a name.")
        settings = {
            "requires_grad": any(parameter.requires_grad for parameter in self.bilm.parameters()),
            "layer_norm": self.mix.layer_norm, "top_only": self.mix.top_only, "dropout": self.mix.dropout,
            "tokenizer": self._tokenizer, "max_seq_length": self.max_seq_length,
        }  # fmt: skip
        tensors = {name: tensor.detach().float().cpu().clone() for name, tensor in self.bilm.state_dict().items()}
        folder = Path(output_path)
        save_store(folder / _BILM, dataclasses.replace(self._parts, tensors=tensors), overwrite=True)
        mix = {name: tensor.detach().cpu().contiguous() for name, tensor in self.mix.state_dict().items()}
        save_file(mix, folder / _MIX)
        (folder / _SETTINGS).write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **options: Any) -> ElmoModule:
        """Reads what `save` wrote, from a local folder or a repository of the Hugging Face hub."""
        names = ("token", "cache_folder", "revision", "local_files_only")
        where = {name: options[name] for name in names if name in options}
        path = cls.load_dir_path(model_name_or_path, subfolder=subfolder, **where)
        folder = Path(path or ".")
        if path is None or not (folder / _SETTINGS).is_file():
            raise WeightsError(
                f"{model_name_or_path}: {subfolder or 'the folder'} has no {_SETTINGS}.", "Save it again."
            )
        module = cls(folder / _BILM, **json.loads((folder / _SETTINGS).read_text(encoding="utf-8")))
        module.mix.load_state_dict(load_file(folder / _MIX))
        return module
