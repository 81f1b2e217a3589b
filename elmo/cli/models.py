"""`elmo models`: lists the known models: those shipped, those on this machine, and those that can be fetched."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from elmo.errors import ConfigError, ElmoError
from elmo.files import read_json
from elmo.weights.catalogue import OWN_MODELS, PUBLISHED_MODELS, PublishedModel
from elmo.weights.languages import language_code, language_codes
from elmo.weights.model_folders import SHIPPED_FOLDER, local_models, shipped_model

EXAMPLE = "elmo models --language de"
_MAX_CODES = 3  # of languages in a row of the table


def run(
    language: Annotated[
        str, typer.Option("--language", help="Show only models of this language: a code or a name (de, German).")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array instead of a table.")] = False,
) -> None:
    """List the known models: languages, sizes, training text, and where they are.

    The column `where` says: shipped (part of the package), here (on this machine), fetch (`elmo fetch NAME` downloads
    it), by hand (`elmo info NAME` says what to download), unreadable (in a format that is not supported).
    """
    codes = language_codes(language_code(language) or language)
    rows = [row for row in model_rows() if not language or codes & set(row["languages"])]
    if not rows:
        models = (*OWN_MODELS.values(), *PUBLISHED_MODELS.values())
        known = sorted({code for model in models for code in model.languages} - {"protein"})
        raise ConfigError(f"No model is known for the language {language!r}.", f"Known: {', '.join(known)}.")
    if as_json:
        typer.echo(json.dumps(rows, ensure_ascii=False))
        return
    width = max(len(row["name"]) for row in rows)
    languages = [_languages(row["languages"]) for row in rows]
    column = max(map(len, ("languages", *languages)))
    head = f"{'name':<{width}}  {'languages':<{column}}  {'parameters':>11}  {'width':>5}  {'where':<10}  trained on"
    typer.echo(head)
    for row, codes_of_row in zip(rows, languages, strict=True):
        parameters = f"{row['parameters']:,}" if row["parameters"] else "?"
        typer.echo(
            f"{row['name']:<{width}}  {codes_of_row:<{column}}  {parameters:>11}  {row['dim'] or '?':>5}  "
            f"{row['where']:<10}  {row['trained_on'] or '?'}"
        )
    typer.echo(
        "`elmo fetch NAME` downloads a model; `elmo info NAME` shows more, or says how to get the model.", err=True
    )


def model_rows() -> list[dict[str, Any]]:
    """One row per model: the built-in ones, the others on this machine, then all published ones."""
    local = local_models()
    shipped = shipped_model()
    default = f"the shipped model {shipped.name!r}" if shipped else "nothing: no trained model is shipped"
    rows = [
        _row("default", **_shape(shipped), trained_on=default, path=str(shipped or "-"), where="shipped")
        | ({"languages": OWN_MODELS[shipped.name].languages} if shipped and shipped.name in OWN_MODELS else {}),
        _row("tiny-random", trained_on="nothing: random numbers, for tests", path="-", where="shipped"),
    ]
    for name, folder in local.items():
        if name not in PUBLISHED_MODELS:
            own = dataclasses.asdict(OWN_MODELS[name]) if folder.parent == SHIPPED_FOLDER and name in OWN_MODELS else {}
            where = "shipped" if folder.parent == SHIPPED_FOLDER else "here"
            rows.append(_row(name) | own | _shape(folder) | {"path": str(folder), "where": where})
    for name, model in PUBLISHED_MODELS.items():
        rows.append(dataclasses.asdict(model) | {"path": str(local.get(name, "")), "where": _where(model, local)})
    return rows


def _languages(codes: Sequence[str]) -> str:
    return " ".join(codes) if len(codes) <= _MAX_CODES else f"{len(codes)} languages"


def _where(model: PublishedModel, local: dict[str, Path]) -> str:
    if model.name in local:
        return "here"
    if model.fetchable:
        return "fetch"
    return "unreadable" if model.obstacle else "by hand"


def _row(name: str, **facts: Any) -> dict[str, Any]:
    return {"name": name, "languages": [], "trained_on": "", "parameters": None, "dim": None, **facts}


def _shape(folder: Path | None) -> dict[str, Any]:
    """Width and parameters of a model in our own format, from its config.json alone; empty for other formats."""
    from elmo.model.config import BiLMConfig, num_parameters

    if folder is None:
        return {}
    try:
        config = BiLMConfig.from_dict(read_json(folder / "config.json")["model"])
    except (KeyError, TypeError, ValueError, ElmoError):  # another format, or an error that `elmo info` explains
        return {}
    return {"dim": config.dim, "parameters": num_parameters(config)}
