"""The biLM through torch.export: an ExportedProgram, or a library compiled by AOTInductor, as one .pt2 file.

The recurrence is torch's `scan` operator, so that one program takes any number of rows and tokens; a Python loop would
fix the number of tokens. `scan` is a prototype of torch, so a torch that cannot export or compile it gives an error.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmo import __version__
from elmo.embed.load import model_parts
from elmo.errors import ConfigError, OutputError
from elmo.files import atomic_file, sha256_file
from elmo.integrations.export_check import ExportedNetwork, check_export, trial_inputs
from elmo.model.bilm import BiLM
from elmo.model.lstm import LSTMStack, ProjectedLSTM
from elmo.weights.convert import drop_head
from elmo.weights.model_parts import build


class ExportableBiLM(nn.Module):
    """The network of a biLM without shapes that depend on values: ids (B, T, W) to layers (L+1, B, T, D) and mask."""

    def __init__(self, model: BiLM) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        B, T = ids.shape[0], ids.shape[1]
        valid = (ids != 0).any(dim=-1).transpose(0, 1)[:, :, None]  # (T, B, 1): scan runs over the first axis
        rows = ids.transpose(0, 1).flatten(0, 1)  # (T*B, W)
        x = self.model.token_encoder(rows, _all_windows).view(T, B, -1) * valid  # (T, B, P)
        directions = [_run_stack(stack, x, valid, reverse=r == 1) for r, stack in enumerate(self.model.stacks)]
        layers = torch.stack([torch.cat(outputs, dim=-1) for outputs in zip(*directions, strict=True)])
        return layers.transpose(1, 2).contiguous(), valid[:, :, 0].transpose(
            0, 1
        ).contiguous()  # (L+1, B, T, D), (B, T)


def export_torch(
    model: str | Path,
    out: Path,
    *,
    weights: str | Path | None = None,
    aoti: bool = False,  # compile the program for this machine's processor
    check: bool = True,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Writes `out` and returns a report; an error, also one of the check, leaves nothing under that name."""
    if out.suffix != ".pt2":
        raise ConfigError(f"{out}: the name of an exported program ends in .pt2.")
    with atomic_file(out, overwrite=overwrite) as partial:
        parts = drop_head(model_parts(model, weights, lazy_head=True))
        network = build(parts).requires_grad_(False)
        program = export_program(network)
        facts = {"version": __version__, "name": parts.about.get("name", ""), "config": parts.config.to_dict()}
        if aoti:
            _compile(program, partial)
        else:
            torch.export.save(program, str(partial), extra_files={"elmo.json": json.dumps(facts)})
        difference = check_export(load_program(partial, aoti=aoti), network, out.name) if check else None
    return {
        "format": "aoti" if aoti else "torch.export",
        "files": [{"name": out.name, "bytes": out.stat().st_size, "sha256": sha256_file(out)}],
        "inputs": {"ids": ["rows", "tokens", parts.config.row_width]},
        "outputs": {
            "layers": [parts.config.num_layers, "rows", "tokens", parts.config.dim],
            "mask": ["rows", "tokens"],
        },
        "max_difference": difference,
        "rounding": None,
    }


def export_program(model: BiLM) -> torch.export.ExportedProgram:
    """The program of a model in float32, for any number of rows and tokens."""
    ids = torch.from_numpy(trial_inputs(model.config)[3])  # rows and tokens differ, and both are above 1
    shapes = {"ids": {0: torch.export.Dim("rows", min=1), 1: torch.export.Dim("tokens", min=1)}}
    try:
        with torch.no_grad():
            return torch.export.export(ExportableBiLM(model).eval(), (ids,), dynamic_shapes=shapes, strict=False)
    except Exception as error:  # torch.export raises errors of many classes
        raise _unsupported("torch.export cannot export the model", error) from error


def load_program(path: Path, *, aoti: bool) -> ExportedNetwork:
    """The network of a file of `export_torch`, as a function from ids to layers and mask."""
    loaded = torch._inductor.aoti_load_package(str(path)) if aoti else torch.export.load(str(path)).module()

    def run(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with torch.inference_mode():
            layers, mask = loaded(torch.from_numpy(ids))
        return layers.numpy(), mask.numpy()

    return run


def _compile(program: torch.export.ExportedProgram, path: Path) -> None:
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own code uses names that torch deprecates
            torch._inductor.aoti_compile_and_package(program, package_path=str(path))
    except Exception as error:  # of the compiler or of torch
        raise _unsupported("AOTInductor cannot compile the model", error) from error


def _unsupported(what: str, error: Exception) -> OutputError:
    reason = " ".join(str(error).split())[:300] or type(error).__name__
    return OutputError(
        f"{what} with torch {torch.__version__}: {reason}", "Use torch 2.13 or newer; AOTInductor needs a C++ compiler."
    )


def _run_stack(stack: nn.Module, x: Tensor, valid: Tensor, *, reverse: bool) -> list[Tensor]:
    """The token layer and the output of every LSTM layer of one direction, (T, B, P) each; zero where not valid.

    All layers take a step together: AOTInductor of torch 2.13 writes wrong C++ for a scan over the outputs of a scan.
    """
    from torch._higher_order_ops.scan import scan

    assert isinstance(stack, LSTMStack)
    layers, skip = [cast(ProjectedLSTM, layer) for layer in stack.layers], stack.skip
    B, P = x.shape[1], x.shape[2]
    from_input = x @ layers[0].kernel[:P] + layers[0].bias  # (T, B, 4H)

    def step(state: list[Tensor], inputs: tuple[Tensor, Tensor]) -> tuple[list[Tensor], Tensor]:
        gates, is_valid = inputs
        new_state: list[Tensor] = []
        outputs: list[Tensor] = []
        for number, layer in enumerate(layers):
            h, c = state[2 * number], state[2 * number + 1]
            if number > 0:
                gates = outputs[-1] @ layer.kernel[:P] + layer.bias
            new_h, new_c = layer.step(gates + h @ layer.kernel[P:], c, layer.projection)
            new_state += [torch.where(is_valid, new_h, h), torch.where(is_valid, new_c, c)]
            out = new_h * is_valid
            outputs.append(out + outputs[-1] if skip and number > 0 else out)
        # expand makes B an input of the step: AOTInductor needs it there to allocate the outputs
        return new_state, torch.stack(outputs).expand(len(layers), B, P).clone()

    H = layers[0].kernel.shape[1] // 4
    initial = [x.new_zeros(B, dim) for _ in layers for dim in (P, H)]
    _, outputs = scan(step, initial, (from_input, valid), dim=0, reverse=reverse)  # (T, L, B, P)
    return [x, *outputs.unbind(1)]


def _all_windows(ids: Tensor, table: Tensor, weights: list[Tensor], biases: list[Tensor]) -> Tensor:
    """The maximum of each filter over all columns, (N, F); the model's own code cuts off columns that only repeat."""
    x = F.embedding(ids, table).transpose(1, 2)  # (N, E, C)
    return torch.cat([F.conv1d(x, w, b).amax(dim=-1) for w, b in zip(weights, biases, strict=True)], dim=-1)
