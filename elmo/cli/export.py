"""`elmo export`: writes what other tools read: a model's network, or static word vectors."""

from __future__ import annotations

from elmo.cli import export_words
from elmo.cli.export_network import ONNX_EXAMPLE, TORCH_EXAMPLE, export_onnx_file, export_torch_file

EXAMPLE = ONNX_EXAMPLE
COMMANDS = {
    "onnx": (export_onnx_file, ONNX_EXAMPLE),
    "torch": (export_torch_file, TORCH_EXAMPLE),
    "words": (export_words.export_words, export_words.EXAMPLE),
}


def run() -> None:
    """Export from a model for other tools: its network (ids in, all layers out), or static word vectors."""
