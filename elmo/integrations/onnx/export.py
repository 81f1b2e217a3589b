"""Writes a model as an ONNX file and checks the file with onnxruntime before it gets its final name."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from elmo import __version__
from elmo.embed.load import model_parts
from elmo.errors import ConfigError, OutputError
from elmo.files import atomic_file, require_extra, sha256_file
from elmo.integrations.export_check import check_export, rounding_error
from elmo.model.bilm import BiLM
from elmo.weights.convert import drop_head
from elmo.weights.model_parts import ModelParts, build
from elmo.weights.quantize import pack, unpack

STORAGES = ("float32", "int8")
LARGEST_FILE = 2_000_000_000  # bytes of weights in one file; a protocol buffer has at most 2 GiB


def export_onnx(
    model: str | Path,
    out: Path,
    *,
    weights: str | Path | None = None,
    storage: str = "float32",  # float32, int8
    external_data: bool = False,  # the weights in a file of their own; always so above LARGEST_FILE
    check: bool = True,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Writes `out` (and `out`.data with external data) and returns a report: files, inputs, outputs, differences.

    The softmax is not exported. An error, also one of the check, leaves nothing under the final names.
    """
    if storage not in STORAGES:
        raise ConfigError(f"storage is {storage!r}; expected one of {', '.join(STORAGES)}.")
    if out.suffix.lower() != ".onnx":
        raise ConfigError(f"{out}: the name of an ONNX file ends in .onnx.")
    require_extra("onnx", "onnx", "onnx")
    if check:
        require_extra("onnxruntime", "onnx", "onnxruntime")
    data_path = out.with_name(f"{out.name}.data")
    with atomic_file(out, overwrite=overwrite) as partial:
        parts = drop_head(model_parts(model, weights, lazy_head=True))
        network = build(parts)
        stored = {name: tensor.detach() for name, tensor in network.state_dict().items()}
        exported = network
        if storage == "int8":
            stored = pack(stored)
            tensors, source = unpack(stored, parts.source), f"{parts.source} in int8"
            exported = build(dataclasses.replace(parts, tensors=tensors, source=source))
        proto, weight_bytes = _model_proto(parts, stored, storage)
        external_data = external_data or weight_bytes > LARGEST_FILE
        partial_data = partial.with_name(data_path.name)
        _save(proto, partial, partial_data if external_data else None)
        del proto, stored
        difference = check_onnx(partial, exported, out.name) if check else None
        rounding = None if storage == "float32" else dataclasses.asdict(rounding_error(parts, network, exported))
        if external_data:
            with atomic_file(data_path, overwrite=overwrite) as target:
                os.replace(partial_data, target)
                out.unlink(missing_ok=True)  # an earlier model must not be read with these weights
    return {
        "format": "onnx",
        "storage": storage,
        "files": describe_files([out, data_path] if external_data else [out]),
        "inputs": {"ids": ["rows", "tokens", parts.config.row_width]},
        "outputs": {
            "layers": [parts.config.num_layers, "rows", "tokens", parts.config.dim],
            "mask": ["rows", "tokens"],
        },
        "max_difference": difference,
        "rounding": rounding,
    }


def check_onnx(path: Path, model: BiLM, what: str) -> float:
    """The largest difference between a file in onnxruntime on the CPU and the model; too large is an OutputError."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # its errors are raised as well
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's classes have no common base
        raise OutputError(f"{what}: onnxruntime cannot load the file ({_first_line(error)}).") from error

    def run(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        try:
            layers, mask = session.run(["layers", "mask"], {"ids": ids})
        except Exception as error:
            raise OutputError(f"{what}: onnxruntime cannot run the file ({_first_line(error)}).") from error
        return layers, mask

    return check_export(run, model, what)


def describe_files(paths: list[Path]) -> list[dict[str, Any]]:
    """Name, size and sha256 of each file, for a report."""
    return [{"name": path.name, "bytes": path.stat().st_size, "sha256": sha256_file(path)} for path in paths]


def _model_proto(parts: ModelParts, tensors: dict[str, Any], storage: str) -> tuple[Any, int]:
    """The model as ONNX's protocol buffer, with the facts that its user needs, and the bytes of its weights."""
    from onnx import helper

    from elmo.integrations.onnx.graph import IR_VERSION, OPSET, bilm_graph

    graph = bilm_graph(parts.config, tensors)
    proto = helper.make_model(
        graph.proto(),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="elmo-lm",
        producer_version=__version__,
        doc_string=(
            "biLM of ELMo. ids (rows, tokens, width): int32 with boundary rows, zeros after the end of a sentence. "
            "layers (layers, rows, tokens, dim): layer 0 is the token layer. mask (rows, tokens): false at the padding."
        ),
    )
    reads = "symbols of a lexicon" if parts.lexicon is not None else "UTF-8 bytes" if parts.config.chars else "words"
    facts = {
        "name": str(parts.about.get("name", "")),
        "reads": reads,
        "tokenizer": parts.tokenizer or "",
        "storage": storage,
        "config": json.dumps(parts.config.to_dict()),
    }
    helper.set_model_props(proto, facts)
    return proto, graph.weight_bytes


def _save(proto: Any, path: Path, data_path: Path | None) -> None:
    import onnx

    if data_path is None:
        onnx.save_model(proto, str(path))
    else:
        onnx.save_model(proto, str(path), save_as_external_data=True, location=data_path.name)
        shutil.copymode(path, data_path)  # onnx writes this file for its owner only


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
