"""`elmo info`: shows the format, sizes, files and card of a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmo.cli.options import ModelFile, Weights

if TYPE_CHECKING:
    from elmo.model.config import HeadConfig
    from elmo.weights.model_parts import ModelParts

EXAMPLE = "elmo info model/ --tensors"


def run(
    model: ModelFile = "default",
    weights: Weights = "",
    tensors: Annotated[bool, typer.Option("--tensors", help="Also list every tensor.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Show a model's format, sizes, files with their sha256, and card."""
    from elmo.weights.formats import read_model
    from elmo.weights.lookup import find_model

    parts = read_model(model, weights) if weights else find_model(model)
    facts = model_facts(parts, [Path(name) for name in (model, weights) if Path(name).is_file()])
    if as_json:
        typer.echo(json.dumps(facts | ({"tensors": _tensors(parts)} if tensors else {}), ensure_ascii=False))
        return
    for name, value in (facts | {"languages": " ".join(facts["languages"]) or None}).items():
        for number, line in enumerate(value if isinstance(value, list) else [value]):
            typer.echo(f"{name if number == 0 else '':<18} {_format_value(line)}")
    if tensors:
        typer.echo("")
        for row in _tensors(parts):
            typer.echo(f"{row['name']:<48} {tuple(row['shape'])!s:<20} {row['dtype']}  {row['published']}")


def model_facts(parts: ModelParts, named_files: list[Path]) -> dict[str, Any]:
    """Name -> number, string, None or list, in display order; `named_files` are the files on the command line."""
    import torch

    from elmo.model.config import num_parameters

    config, lstm = parts.config, parts.config.lstm
    num_nonfinite = sum(int((~torch.isfinite(tensor)).sum()) for tensor in parts.tensors.values())
    return {
        "source": parts.source,
        "format": parts.format,
        "storage": parts.storage or None,
        "softmax": _softmax(config.head),
        "softmax_bits": parts.head_bits,
        "name": parts.about.get("name", ""),
        "finetuned_from": parts.about.get("finetuned_from"),
        "languages": _languages(parts),
        "parameters": num_parameters(config),
        "with_softmax": num_parameters(config, head=True) if config.head else None,
        "vector_width": config.dim,
        "layers_of_vectors": config.num_layers,
        "lstm_layers": lstm.num_layers,
        "directions": config.num_directions,
        "cell_dim": lstm.cell_dim,
        "projection_dim": lstm.proj_dim,
        "skip_connections": lstm.skip,
        "cell_clip": lstm.cell_clip,
        "projection_clip": lstm.proj_clip,
        "forget_bias": lstm.forget_bias,
        "reads": _reads(parts),
        "characters": config.chars.num_chars if config.chars else None,
        "max_characters": config.chars.max_chars if config.chars else None,
        "filters": " ".join(f"{w}x{n}" for w, n in config.chars.filters) if config.chars else None,
        "activation": config.chars.activation if config.chars else None,
        "highways": config.chars.num_highways if config.chars else None,
        "vocabulary": len(parts.vocab) if parts.vocab is not None else None,
        "word_prior": _word_prior(parts),
        "tokenizer": parts.tokenizer,
        "mixes": [{"weights": list(weights), "gamma": gamma} for weights, gamma in parts.mixes],
        "not_finite": num_nonfinite,
        "files": _files(parts, named_files),
        "card": [line for line in parts.card.splitlines() if line.strip()][:12],
    }


def _languages(parts: ModelParts) -> list[str]:
    """The codes of the languages that the model has recorded, or that the catalogue has for its name."""
    from elmo.weights.catalogue import OWN_MODELS, PUBLISHED_MODELS

    known = (OWN_MODELS | PUBLISHED_MODELS).get(str(parts.about.get("name", "")))
    recorded = parts.about.get("languages")
    codes = recorded if isinstance(recorded, list) else known.languages if known else ()
    return [str(code) for code in codes]


def _reads(parts: ModelParts) -> str:
    if parts.lexicon is not None:
        return "characters and words of a lexicon" if parts.config.words else "characters of a lexicon"
    return "bytes" if parts.config.chars else "words"


def _softmax(head: HeadConfig | None) -> str | None:
    """The kind of the softmax; None: the model has none."""
    if head is None:
        return None
    if head.kind == "adaptive":
        words = "word" if len(head.cutoffs) == 1 else "words"
        return f"adaptive, clusters from {words} {' and '.join(f'{start:,}' for start in head.cutoffs)}"
    return "tied to the word table" if head.tied else "one row per word"


def _word_prior(parts: ModelParts) -> str | None:
    """What the ranking of substitutes takes for a word's own frequency; None: the model has no softmax."""
    from elmo.text.vocab import BOS, EOS

    if parts.config.head is None or parts.vocab is None:
        return None
    if parts.word_counts is None:
        return "Zipf's law from the order of the vocabulary (no word counts are stored)"
    counts = zip(parts.vocab, parts.word_counts.tolist(), strict=True)
    num_words = sum(count for word, count in counts if word not in (BOS, EOS))
    return f"word counts of the training text ({num_words:,} words)"


def _files(parts: ModelParts, named_files: list[Path]) -> list[dict[str, Any]]:
    from elmo.files import sha256_file
    from elmo.weights.published import find_options

    source = Path(parts.source)
    if source.is_dir():
        paths = [*source.iterdir()]
    else:  # a file, a checkpoint's prefix, or nothing on disk
        shards = source.parent.glob(f"{source.name}.*") if parts.format == "tensorflow" else ()
        paths = [source, *named_files, *shards]
        if parts.format == "hdf5" and source.suffix != ".zip" and not any(p.suffix == ".json" for p in named_files):
            paths.append(find_options(source))
    unique = {p.resolve(): p for p in paths if p.is_file()}.values()
    return [{"name": p.name, "bytes": p.stat().st_size, "sha256": sha256_file(p)} for p in sorted(unique)]


def _tensors(parts: ModelParts) -> list[dict[str, Any]]:
    from elmo.weights.names import tensor_specs

    published = {spec.name: spec.published_name for spec in tensor_specs(parts.config)}
    return [
        {
            "name": name,
            "shape": list(tensor.shape),
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "published": published.get(name, ""),
        }
        for name, tensor in parts.tensors.items()
    ]


def _format_value(value: Any) -> str:
    if isinstance(value, dict) and "sha256" in value:
        return f"{value['sha256']}  {value['bytes']:>13,}  {value['name']}"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    return f"{value:,}" if isinstance(value, int) else str(value)
