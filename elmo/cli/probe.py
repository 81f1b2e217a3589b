"""`elmo probe`: measures what each layer encodes: parts of speech, named entities, word senses, similarity."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elmo.cli.command_line import command_line
from elmo.cli.options import Device
from elmo.errors import ConfigError

KINDS = ("pos", "languages", "ner", "wsd", "wic", "similarity")
EXAMPLE = "elmo probe pos treebanks/en_ewt --model my-model/ --out pos.json"


def run(
    kind: Annotated[str, typer.Argument(help="Probe: pos, languages, ner, wsd, wic or similarity.")],
    data: Annotated[
        list[str],
        typer.Argument(
            help="Data of the probe. pos, ner: train, dev and test files, their folder, or their common prefix. "
            "languages: a folder with treebanks of several languages (de-ud-train.conllu ...). wsd: the folder with "
            "SemCor, Evaluation_Datasets and index.sense. wic: the folder with train.data.txt. similarity: a file of "
            "word pairs with human ratings."
        ),
    ],
    model: Annotated[
        str | None, typer.Option(help="Name, folder or file of the model. Default: the shipped model.")
    ] = None,
    vectors: Annotated[
        str | None,
        typer.Option(
            help="Probe static word vectors instead: a file in word2vec's text format (.gz .bz2 .xz .zst too). "
            "languages: besides the model, one file per language, named with {language}: 'vectors/{language}.vec'."
        ),
    ] = None,
    column: Annotated[
        str | None,
        typer.Option(help="Tag column of the treebank (pos): xpos, the default, or upos; languages always uses upos."),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of epochs (pos, languages, ner); 12 by default.")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Seed of the word order and the initial weights (pos, languages, ner); 0 by default."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of sentences per file, for a quick trial.")
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder in which vectors are cached between runs, as float16 (pos, languages, ner)."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the record of the run to this JSON file.")] = None,
    compute_dtype: Annotated[
        str | None,
        typer.Option(
            help="Number type of the model's computation: float32, bfloat16, int8, float16, float64. Default: float32."
        ),
    ] = None,
    device: Device = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON instead of a table.")] = False,
) -> None:
    """Train or evaluate a small classifier on frozen vectors, for every layer in one pass over the text."""
    if kind not in KINDS:
        raise ConfigError(f"There is no probe {kind!r}.", f"Expected one of {', '.join(KINDS)}.")
    from elmo.probes.run import FITTED, check_options, run_probe

    check_options(kind, {"--column": column, "--epochs": epochs, "--seed": seed, "--cache": cache})
    static_path = None if kind == "languages" else vectors
    if static_path is not None:
        _check_no_model(kind, {"--model": model, "--compute-dtype": compute_dtype})
    model, compute_dtype = model or "default", compute_dtype or "float32"
    import elmo
    from elmo.devices import choose_device
    from elmo.embed.dump.target import check_place
    from elmo.probes.linear import FitConfig
    from elmo.probes.table import table
    from elmo.probes.vector_source import ModelVectors, VectorSource, read_static_vectors
    from elmo.records import format_record, write_record

    if out is not None:
        check_place(out)  # before the probe, which takes minutes
    source: VectorSource
    if static_path is not None:
        source = read_static_vectors(static_path)
    else:
        source = ModelVectors(elmo.load(model, device=device, dtype=compute_dtype))
    is_fitted = kind in FITTED
    column = column or ("xpos" if kind == "pos" else None)
    config = FitConfig(**{name: value for name, value in (("epochs", epochs), ("seed", seed)) if value is not None})
    record = run_probe(
        kind, source, data, column=column, config=config if is_fitted else None, limit=limit, cache=cache,
        static_vectors=vectors if kind == "languages" else None, device=choose_device(device), show=True,
    )  # fmt: skip
    record["command"] = command_line(
        "probe", kind, *data,
        vectors=vectors, model=model if static_path is None else None,
        column=column,
        epochs=config.epochs if is_fitted else None, seed=config.seed if is_fitted else None, limit=limit,
        compute_dtype=compute_dtype if compute_dtype != "float32" else None,
    )  # fmt: skip
    if out is not None:
        write_record(out, record)
    print(format_record(record) if as_json else table(record))


def _check_no_model(kind: str, of_model: dict[str, str | None]) -> None:
    """Raises an error for an option of the model, because --vectors replaces the model."""
    for flag, value in of_model.items():
        if value is not None:
            raise ConfigError(
                f"{flag} was given, but --vectors replaces the model in the probe {kind}.",
                f"Leave {flag} or --vectors out; to compare both, run the command once for each.",
            )
