"""How many tokens per second does pretraining process, and with how much memory, compared with plain PyTorch?

    python benchmarks/pretrain.py                                        # sizes that suit this machine
    python benchmarks/pretrain.py --device cuda --sizes small original --rows 128 512 --steps 20 40

The baseline is a straightforward PyTorch training loop: the characters of every token go through nn.Embedding and
Conv1d at the full 50 columns, each direction is an nn.LSTM(proj_size) with carried state, and the size of the sampled
softmax, the optimizer and the precision are the same. It has no clips and no skip connections, so it does a little less
work. Both process the same batches, in turn, in one process; our batches are prepared beforehand (distinct words,
negatives), as prefetching threads do in a run.

Tokens are counted per direction. Memory is the peak of a step above the memory in use before it, plus weights and
optimizer state. Share of peak: the useful operations (each distinct word encoded once) relative to the speed of a large
product on this device in the same precision, which is measured first.
Without --text, artificial words are drawn by Zipf's law, so that about as many repeat as in real text.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import elmo  # noqa: F401  # before torch, as in a run: it tells threads that wait not to spin

# isort: split
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmo.bench.roofline import product_peak
from elmo.kernels.api import kernels_set_to
from elmo.model.bilm import BiLM
from elmo.model.config import PRESETS, BiLMConfig, HeadConfig
from elmo.pretrain.config import RunConfig, make_config
from elmo.pretrain.data.artificial_text import make_batches, word_rows, zipf_ids
from elmo.pretrain.data.stream import LMBatch
from elmo.pretrain.train.heap_memory import freed_memory_kept
from elmo.pretrain.train.sampler import draw
from elmo.pretrain.train.step import Trainer
from elmo.pretrain.train.throughput import flops_per_token
from elmo.text.chars import encode_tokens


class PlainBiLM(nn.Module):
    """The baseline: a biLM of standard PyTorch modules."""

    def __init__(self, config: BiLMConfig, vocab_size: int) -> None:
        super().__init__()
        chars, lstm = config.chars, config.lstm
        self.embed = nn.Embedding(262, chars.char_dim, padding_idx=0)
        self.convolutions = nn.ModuleList(nn.Conv1d(chars.char_dim, count, width) for width, count in chars.filters)
        dim = chars.num_filters
        self.highways = nn.ModuleList(nn.Linear(dim, 2 * dim) for _ in range(chars.num_highways))
        self.project = nn.Linear(dim, lstm.proj_dim)
        self.directions = nn.ModuleList(
            nn.LSTM(
                lstm.proj_dim, lstm.cell_dim, lstm.num_layers, proj_size=lstm.proj_dim, batch_first=True, dropout=0.1
            )
            for _ in range(2)
        )
        self.softmax = nn.Linear(lstm.proj_dim, vocab_size)

    def encode(self, chars: Tensor) -> Tensor:
        x = self.embed(chars.flatten(0, 1)).transpose(1, 2)  # (B*T, E, C)
        x = torch.cat([F.relu(convolution(x).amax(dim=-1)) for convolution in self.convolutions], dim=-1)  # (B*T, F)
        for highway in self.highways:
            new, gate = highway(x).chunk(2, dim=-1)
            x = torch.sigmoid(gate) * F.relu(new) + (1 - torch.sigmoid(gate)) * x
        return self.project(x).unflatten(0, chars.shape[:2])  # (B, T, P)

    def loss(self, direction: int, chars: Tensor, targets: Tensor, state: list, negatives: Tensor) -> Tensor:
        hidden, last_state = self.directions[direction](self.encode(chars), state[direction])
        state[direction] = tuple(s.detach() for s in last_state)
        hidden, targets = F.dropout(hidden, 0.1).flatten(0, 1), targets.flatten()
        weight, bias = self.softmax.weight, self.softmax.bias
        true = (hidden * weight[targets]).sum(dim=-1, keepdim=True) + bias[targets][:, None]  # (B*T, 1)
        sampled = hidden @ weight[negatives].t() + bias[negatives]  # (B*T, S)
        logits = torch.cat([true, sampled.masked_fill(negatives == targets[:, None], -1e4)], dim=1)
        return F.cross_entropy(logits.float(), torch.zeros_like(targets))


def plain_stepper(config: RunConfig, table: Tensor, vocab_size: int, num_samples: int) -> tuple[nn.Module, Callable]:
    device, half = table.device, config.train.precision == "bfloat16"
    model = PlainBiLM(config.model, vocab_size).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=device.type == "cuda")
    state: list = [None, None]

    def step(batch: LMBatch, number: int) -> None:
        optimizer.zero_grad()
        negatives = draw(vocab_size, num_samples, number).ids.to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=half):
            losses = []
            for direction, stream in enumerate((batch.forward, batch.backward)):
                chars = table[torch.from_numpy(stream.inputs).to(device).long()].int()  # (B, T, C)
                targets = torch.from_numpy(stream.targets).to(device).long()
                losses.append(model.loss(direction, chars, targets, state, negatives))
        (sum(losses) / 2).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses[0].item()

    step.optimizer = optimizer  # type: ignore[attr-defined]  # its state counts as memory
    return model, step


def word_ids(args: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    """The ids of a long text, and the character ids of the words by id; id 0 is the most frequent word."""
    if args.text:
        tokens = Path(args.text).read_text(encoding="utf-8").split()
        words = [word for word, _ in Counter(tokens).most_common(args.vocab)]
        ids_by_word = {word: number for number, word in enumerate(words)}
        return np.array([ids_by_word[t] for t in tokens if t in ids_by_word], dtype=np.int32), encode_tokens(words)
    return zipf_ids(args.vocab, 2_000_000), word_rows(args.vocab)


class PeakMemory:
    """Peak memory since `reset` in bytes, above the memory in use then; NaN where the system does not report it."""

    def __init__(self, device: torch.device) -> None:
        self.cuda = device.type == "cuda"

    def reset(self) -> None:
        if self.cuda:
            torch.cuda.reset_peak_memory_stats()
            self.before = float(torch.cuda.memory_allocated())
            return
        try:
            Path("/proc/self/clear_refs").write_text("5")  # Linux: resets the peak
            self.before = _process_status("VmRSS")
        except OSError:
            self.before = float("nan")

    def peak(self) -> float:
        return (torch.cuda.max_memory_allocated() if self.cuda else _process_status("VmHWM")) - self.before


def _process_status(name: str) -> float:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return float("nan")
    return next(float(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":"))


def model_bytes(model: nn.Module, optimizer: torch.optim.Optimizer) -> float:
    """Bytes of weights and optimizer state."""
    states = [v for state in optimizer.state.values() for v in state.values() if isinstance(v, Tensor)]
    return float(sum(t.numel() * t.element_size() for t in [*model.parameters(), *states]))


def measure(
    args: argparse.Namespace, size: str, rows: int, steps: int, ids: np.ndarray, table: Tensor, peak: float
) -> list[dict]:
    device, vocab_size = table.device, len(table)
    num_samples = min(args.samples, vocab_size // 2)
    config = make_config(
        {
            "preset": size,
            "objective": {"num_samples": num_samples},
            "train": {"rows": rows, "steps": steps, "max_steps": 10_000, "precision": args.precision},
        }
    )
    torch.manual_seed(0)
    model = BiLM(replace(config.model, head=HeadConfig(vocab_size=vocab_size))).to(device)
    trainer = Trainer(model, table, config)
    plain_model, plain = plain_stepper(config, table, vocab_size, num_samples)
    batches = make_batches(ids, rows, steps, args.batches)
    inputs = [trainer.make_inputs(batch, number) for number, batch in enumerate(batches)]

    def ours(batch: LMBatch, number: int) -> None:
        trainer.update(inputs[number % len(inputs)], number)

    systems = {"elmo": (ours, model, trainer.optimizer), "plain": (plain, plain_model, plain.optimizer)}  # type: ignore[attr-defined]
    contexts = {"elmo": lambda: freed_memory_kept(device.type)}  # as in a run
    if args.reference:
        torch.manual_seed(0)
        reference_model = BiLM(model.config)
        with kernels_set_to("off"):
            reference = Trainer(reference_model, table, config)

        def reference_step(batch: LMBatch, number: int) -> None:
            reference.update(inputs[number % len(inputs)], number)

        systems["reference"] = reference_step, reference_model, reference.optimizer
        contexts["reference"] = lambda: kernels_set_to("off")
    distinct = statistics.mean(
        len(np.unique(np.stack([b.forward.inputs, b.backward.inputs]))) / (rows * steps) for b in batches
    )
    memory, rates, peaks = PeakMemory(device), {name: [] for name in systems}, dict.fromkeys(systems, 0.0)
    number = 0
    for repeat in range(args.repeats + 1):  # the first one is the warm-up
        for name, (step, _, _) in systems.items():
            memory.reset()
            with contexts.get(name, nullcontext)():
                start = time.perf_counter()
                for batch in batches:
                    step(batch, number)
                    number += 1
                if device.type == "cuda":
                    torch.cuda.synchronize()
                seconds = time.perf_counter() - start
                peaks[name] = max(peaks[name], memory.peak())
            if repeat:
                rates[name].append(len(batches) * rows * steps / seconds)
    useful = flops_per_token(config.model, num_samples, distinct)
    return [
        {
            "size": size,
            "rows": rows,
            "steps": steps,
            "system": name,
            "tokens_per_second": round(statistics.median(rates[name])),
            "spread": [round(min(rates[name])), round(max(rates[name]))],
            "memory_mb": round((peaks[name] + model_bytes(module, optimizer)) / 1e6),
            "share_of_peak": round(statistics.median(rates[name]) * useful / peak, 3),
        }
        for name, (_, module, optimizer) in systems.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Pretraining speed and memory, compared with a plain PyTorch loop.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--sizes", nargs="+", choices=list(PRESETS))
    parser.add_argument("--rows", nargs="+", type=int)
    parser.add_argument("--steps", nargs="+", type=int, default=[20])
    parser.add_argument("--text", help="tokenised text; without it, words are artificial")
    parser.add_argument("--vocab", type=int)
    parser.add_argument("--samples", type=int, default=8192)
    parser.add_argument("--precision", choices=["float32", "bfloat16"])
    parser.add_argument("--batches", type=int, default=5, help="batches per measurement")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, help="threads on the CPU; default: all cores")
    parser.add_argument("--reference", action="store_true", help="also measure our step without kernels (CPU)")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    cuda = args.device.startswith("cuda")
    args.sizes = args.sizes or (["small", "original"] if cuda else ["tiny"])
    args.rows = args.rows or ([128, 512] if cuda else [32])
    args.vocab = args.vocab or (100_000 if cuda else 10_000)
    args.precision = args.precision or ("bfloat16" if cuda else "float32")
    ids, char_ids = word_ids(args)
    table = torch.from_numpy(char_ids.astype(np.int16)).to(args.device)
    peak = 1e9 * product_peak(args.precision, args.device) * (1 if cuda else torch.get_num_threads())
    print(f"a large product in {args.precision}: {peak / 1e12:.4g} TFLOP/s")
    results = []
    header = (
        f"{'size':9} {'rows':>5} {'steps':>5}  {'system':9} {'tokens/s':>10} {'from':>10} {'to':>10} {'MB':>8}  of peak"
    )
    print(header)
    for size in args.sizes:
        for rows in args.rows:
            for steps in args.steps:
                for row in measure(args, size, rows, steps, ids, table, peak):
                    results.append(row)
                    print(
                        f"{size:9} {rows:5} {steps:5}  {row['system']:9} {row['tokens_per_second']:10,} "
                        f"{row['spread'][0]:10,} {row['spread'][1]:10,} {row['memory_mb']:8,} "
                        f" {row['share_of_peak']:.1%}",
                        flush=True,
                    )
                if cuda:
                    torch.cuda.empty_cache()
    description = {
        "benchmark": "pretrain",
        "device": torch.cuda.get_device_name() if cuda else f"{platform.processor() or platform.machine()} CPU",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "precision": args.precision,
        "peak_tflops": round(peak / 1e12, 3),
        "vocab": len(table),
        "samples": args.samples,
        "text": args.text or "artificial",
    }
    print(json.dumps(description | {"rows": results}))


if __name__ == "__main__":
    main()
