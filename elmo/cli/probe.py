"""`elmo probe`: measures what each layer encodes: parts of speech, named entities, word senses, similarity."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elmo.cli.command_line import command_line
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
    model: Annotated[str, typer.Option(help="Name, folder or file of the model.")] = "default",
    vectors: Annotated[
        str | None,
        typer.Option(
            help="Probe static word vectors instead: a file in word2vec's text format (.gz .bz2 .xz .zst too). "
            "languages: besides the model, one file per language, named with {language}: 'vectors/{language}.vec'."
        ),
    ] = None,
    column: Annotated[str, typer.Option(help="Tag column of the treebank: xpos or upos.")] = "xpos",
    epochs: Annotated[int, typer.Option(min=1, help="Maximum number of epochs (pos, ner).")] = 12,
    seed: Annotated[int, typer.Option(help="Seed of the word order and the initial weights (pos, ner).")] = 0,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of sentences per file, for a quick trial.")
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Folder in which vectors are cached between runs, as float16 (pos, ner).")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the record of the run to this JSON file.")] = None,
    compute_dtype: Annotated[
        str, typer.Option(help="Number type of the computation: float32, bfloat16, int8, float16, float64.")
    ] = "float32",
    device: Annotated[str, typer.Option(help="Device: auto, cpu, cuda, mps.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON instead of a table.")] = False,
) -> None:
    """Train or evaluate a small classifier on frozen vectors, for every layer in one pass over the text."""
    if kind not in KINDS:
        raise ConfigError(f"There is no probe {kind!r}.", f"Expected one of {', '.join(KINDS)}.")
    if column not in ("xpos", "upos"):
        raise ConfigError(f"--column is {column!r}.", "Expected xpos or upos.")
    import elmo
    from elmo.devices import choose_device
    from elmo.embed.dump.target import check_place
    from elmo.probes.linear import FitConfig
    from elmo.probes.run import run_probe
    from elmo.probes.table import table
    from elmo.probes.vector_source import ModelVectors, VectorSource, read_static_vectors
    from elmo.records import format_record, write_record

    if out is not None:
        check_place(out)  # before the probe, which takes minutes
    source: VectorSource
    if vectors and kind != "languages":
        source = read_static_vectors(vectors)
    else:
        source = ModelVectors(elmo.load(model, device=device, dtype=compute_dtype))
    record = run_probe(
        kind, source, data, column=column, config=FitConfig(epochs=epochs, seed=seed), limit=limit, cache=cache,
        static_vectors=vectors if kind == "languages" else None, device=choose_device(device), show=True,
    )  # fmt: skip
    is_fitted = kind in ("pos", "languages", "ner")
    record["command"] = command_line(
        "probe", kind, *data,
        vectors=vectors, model=None if vectors and kind != "languages" else model,
        column=column if kind == "pos" else None,
        epochs=epochs if is_fitted else None, seed=seed if is_fitted else None, limit=limit,
        compute_dtype=compute_dtype if compute_dtype != "float32" else None,
    )  # fmt: skip
    if out is not None:
        write_record(out, record)
    print(format_record(record) if as_json else table(record))
