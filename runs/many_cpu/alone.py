#!/usr/bin/env python3
"""Compares a model of many languages with models of the same size that were trained on one language alone.

    python runs/many_cpu/alone.py MODEL --text text --treebanks ud --out alone --languages ga cy de
    python runs/many_cpu/alone.py MODEL --text text --treebanks ud --out alone --languages ga --finetune-steps 1000
    python runs/many_cpu/alone.py MODEL ... --languages hr --own-vocabulary --finetune-steps 300

For each language, with text/CODE.txt, text/CODE.heldout.txt and the treebank CODE-ud-*.conllu:

1. the vocabulary: those words of MODEL's softmax that occur in the language's training text, or with --own-vocabulary,
   for a language that MODEL has not learned, all words that occur there at least twice;
2. `alone`: `elmo pretrain` with single.toml and this vocabulary;
3. `finetuned`, with --finetune-steps: `elmo finetune` of MODEL on the same text;
4. the perplexity of all models on the held-out text, state reset, with each softmax restricted to the vocabulary, and
   the part-of-speech probe of the new models.

What exists is kept, so the command continues where it was interrupted; MODEL is measured again if its numbers are not
those of the result. OUT/CODE/result.json has the perplexities and the seconds of each command that trained, with its
preparation and final measurement; OUT/CODE/NAME.json the probes.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from elmo.embed.load import model_parts  # noqa: E402
from elmo.pretrain.data.corpus import Reading, read_sentences  # noqa: E402
from elmo.weights.model_parts import ModelParts  # noqa: E402
from elmo.weights.store import save_store  # noqa: E402

HERE = Path(__file__).resolve().parent
SPECIALS = ("<S>", "</S>", "<UNK>")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--treebanks", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--languages", nargs="+", required=True)
    parser.add_argument("--steps", type=int, default=2000, help="updates of each single-language model")
    parser.add_argument("--finetune-steps", type=int, help="updates of the fine-tuned model")
    parser.add_argument("--own-vocabulary", action="store_true", help="all words of the text that occur twice")
    options = parser.parse_args()
    parts = model_parts(options.model)
    for language in options.languages:
        comparison = Comparison(language, options.model, parts, options.out / language, options)
        print(language, json.dumps(comparison.run()), flush=True)


class Comparison:
    """The models of one language, in one folder."""

    def __init__(self, language: str, model: str, parts: ModelParts, folder: Path, options: argparse.Namespace) -> None:
        self.language, self.model, self.parts, self.folder, self.options = language, model, parts, folder, options
        self.text = options.text / f"{language}.txt"
        self.heldout = options.text / f"{language}.heldout.txt"
        self.vocabulary = folder / "vocab.txt"
        self.path = folder / "result.json"
        folder.mkdir(parents=True, exist_ok=True)
        names = ("model", "steps", "finetune_steps", "own_vocabulary")
        settings = {name: getattr(options, name) for name in names}
        self.result: dict[str, Any] = {"settings": settings}
        if self.path.exists():
            self.result = json.loads(self.path.read_text())
            if "finetuned" not in self.result and not (folder / "finetuned").exists():  # it may be added later
                self.result["settings"]["finetune_steps"] = options.finetune_steps
            if self.result["settings"] != settings:
                sys.exit(f"{self.path} has other settings: {self.result['settings']}")

    def run(self) -> dict[str, Any]:
        """Trains and measures what is missing in the result."""
        options = self.options
        if not self.vocabulary.exists():
            self.write_vocabulary()
        if not options.own_vocabulary:
            sha256 = checksum(self.parts)
            if self.result.get("many", {}).get("sha256") != sha256:
                self.measure("many", self.parts, None, sha256=sha256)
        alone = ["--vocab", self.vocabulary, "--config", HERE / "single.toml", "--max-steps", options.steps]
        self.train("alone", "pretrain", [self.text, *alone])
        if options.finetune_steps:
            # batches are those of the single-language model, the learning rate is the default of `elmo finetune`
            num_words = len(self.vocabulary.read_text(encoding="utf-8").split("\n"))
            words = ["--new-words", num_words, "--min-count", 2] if options.own_vocabulary else ["--new-words", 0]
            steps = ["--rows", 64, "--max-steps", options.finetune_steps, "--precision", "bfloat16"]
            settings = ["--set", "objective.num_samples=4096", "--set", "data.reading.specials=escape"]
            self.train("finetuned", "finetune", [self.model, self.text, *words, *steps, *settings])
        return self.result

    def train(self, name: str, verb: str, arguments: list[object]) -> None:
        """Trains a model unless it was measured before; then its probe and its perplexity."""
        if name in self.result:
            return
        is_new, began = not (self.folder / name).exists(), time.monotonic()
        elmo(verb, *arguments, "--heldout", self.heldout, "--tokenizer", "unicode", "--out", self.folder / name)
        seconds = time.monotonic() - began if is_new else None  # of a continued run, only a part was measured
        model = self.folder / name / "model"
        treebank = self.folder / "treebank"
        treebank.mkdir(exist_ok=True)
        for file in self.options.treebanks.glob(f"{self.language}-ud-*.conllu"):
            shutil.copy(file, treebank)
        if any(treebank.iterdir()):
            elmo("probe", "languages", treebank, "--model", model, "--out", self.folder / f"{name}.json")
        self.measure(name, model_parts(str(model)), seconds)

    def measure(self, name: str, parts: ModelParts, seconds: float | None, **about: str) -> None:
        """Adds the perplexity of a model with the restricted softmax to the result."""
        words = self.vocabulary.read_text(encoding="utf-8").split("\n")[:-1]
        folder = self.folder / "restricted"
        save_store(folder, restricted(parts, words), overwrite=True)
        options = ("--tokenizer", "unicode", "--no-carried", "--json")
        record = json.loads(elmo("perplexity", folder, self.heldout, *options))
        self.result[name] = {**record["reset"], "words": record["words"], "unknown": record["unknown"], **about}
        if seconds is not None:
            self.result[name]["seconds"] = round(seconds)
        self.path.write_text(json.dumps(self.result, indent=1) + "\n")

    def write_vocabulary(self) -> None:
        """Writes the words, the most frequent first, after the three special ones."""
        known = set(self.parts.vocab or ())
        reading = Reading(tokenize="unicode", specials="escape")
        counts = Counter(word for sentence in read_sentences([str(self.text)], reading) for word in sentence)
        is_kept = (lambda word: counts[word] >= 2) if self.options.own_vocabulary else known.__contains__
        words = [word for word, _ in counts.most_common() if word not in SPECIALS and is_kept(word)]
        self.vocabulary.write_text("".join(f"{word}\n" for word in (*SPECIALS, *words)), encoding="utf-8")


def restricted(parts: ModelParts, words: list[str]) -> ModelParts:
    """The model with these rows of its softmax alone."""
    rows = {word: row for row, word in enumerate(parts.vocab or ())}
    chosen = [rows[word] for word in words]
    tensors = parts.tensors | (parts.read_head() if parts.read_head is not None else {})
    for name in ("head.weight", "head.bias"):
        tensors[name] = tensors[name][chosen].clone()
    assert parts.config.head is not None
    config = dataclasses.replace(parts.config, head=dataclasses.replace(parts.config.head, vocab_size=len(words)))
    counts = None if parts.word_counts is None else parts.word_counts[chosen]
    return dataclasses.replace(
        parts, config=config, tensors=tensors, vocab=tuple(words), word_counts=counts, read_head=None, head_bits=None
    )


def checksum(parts: ModelParts) -> str:
    """Of all weights, with those of the softmax."""
    digest = hashlib.sha256()
    tensors = parts.tensors | (parts.read_head() if parts.read_head is not None else {})
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def elmo(*arguments: object) -> str:
    """The standard output of a command of the package; its failure ends the script."""
    command = [sys.executable, "-m", "elmo", *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}  # this checkout, not an installed version
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"failed: {' '.join(command)}")
    return done.stdout


if __name__ == "__main__":
    main()
