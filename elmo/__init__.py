"""ELMo: deep contextualized word representations (Peters et al. 2018) in PyTorch.

    import elmo
    vectors = elmo.load("model/").embed("The bank of the river .")

The public names are imported at their first use, so that `import elmo` is fast and needs no torch. Before torch is
imported, `import elmo` sets OMP_WAIT_POLICY=PASSIVE, so that threads that wait leave the processor to others.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# OpenMP threads that spin at barriers need 16 times the CPU time when another process needs a core. The OpenMP library
# reads these variables when torch is imported; later they would have no effect here, only in child processes.
_WAIT_VARIABLES = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}
if "torch" not in sys.modules and not {*_WAIT_VARIABLES, "KMP_BLOCKTIME"} & os.environ.keys():
    os.environ.update(_WAIT_VARIABLES)

if TYPE_CHECKING:
    from elmo.embed.batch_function import batch_function as batch_function
    from elmo.embed.embedder import Embedder as Embedder
    from elmo.embed.load import load as load
    from elmo.errors import ElmoError as ElmoError
    from elmo.integrations.torch import ElmoEmbedding as ElmoEmbedding
    from elmo.model.bilm import BiLM as BiLM
    from elmo.model.config import BiLMConfig as BiLMConfig
    from elmo.model.mix import ScalarMix as ScalarMix
    from elmo.pretrain.bilm_training import finetune_bilm as finetune_bilm
    from elmo.pretrain.bilm_training import train_bilm as train_bilm
    from elmo.text.sentences import split_sentences as split_sentences

_HOMES = {  # public name -> the module that defines it
    "BiLM": "elmo.model.bilm",
    "BiLMConfig": "elmo.model.config",
    "ElmoEmbedding": "elmo.integrations.torch",
    "ElmoError": "elmo.errors",
    "Embedder": "elmo.embed.embedder",
    "ScalarMix": "elmo.model.mix",
    "batch_function": "elmo.embed.batch_function",
    "finetune_bilm": "elmo.pretrain.bilm_training",
    "load": "elmo.embed.load",
    "split_sentences": "elmo.text.sentences",
    "train_bilm": "elmo.pretrain.bilm_training",
}
_FUNCTIONS_OF_VERBS = {"pretrain": "train_bilm", "finetune": "finetune_bilm"}  # commands -> what they are in Python
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _FUNCTIONS_OF_VERBS:
        function = _FUNCTIONS_OF_VERBS[name]
        raise AttributeError(f"module 'elmo' has no function {name!r}: `elmo {name}` is elmo.{function} in Python")
    if name not in _HOMES:
        raise AttributeError(f"module 'elmo' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
