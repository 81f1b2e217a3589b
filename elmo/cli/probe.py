"""`elmo probe`: what frozen vectors know, layer by layer: parts of speech, names, senses, likeness in context."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elmo.cli.command_line import command_line
from elmo.errors import ConfigError

KINDS = ("pos", "ner", "wsd", "wic", "similarity")
EXAMPLE = "elmo probe pos treebanks/en_ewt --model my-model/ --out pos.json"


def run(
    kind: Annotated[str, typer.Argument(help="pos, ner, wsd, wic or similarity.")],
    data: Annotated[
        list[str],
        typer.Argument(
            help="pos, ner: train, dev and test files, their folder, or how their names begin. "
            "wsd: folder with SemCor, Evaluation_Datasets, index.sense. wic: folder with train.data.txt. "
            "similarity: file of judged pairs."
        ),
    ],
    model: Annotated[str, typer.Option(help="Name, folder or file of the model.")] = "default",
    vectors: Annotated[
        str | None, typer.Option(help="Probe static vectors instead: word2vec's text format, compressed by suffix.")
    ] = None,
    column: Annotated[str, typer.Option(help="Which tags of a treebank: xpos or upos.")] = "xpos",
    epochs: Annotated[int, typer.Option(min=1, help="Most passes over the training words (pos, ner).")] = 12,
    seed: Annotated[int, typer.Option(help="Of the order of words and the first weights (pos, ner).")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many sentences of each file: a quick look.")] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Keep vectors in this folder and use them again (pos, ner; float16).")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the record to this file (JSON).")] = None,
    compute_dtype: Annotated[
        str, typer.Option(help="Of the computation: float32, bfloat16, int8, float16, float64.")
    ] = "float32",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print the record instead of a table.")] = False,
) -> None:
    """Fit or measure a small reader on frozen vectors, for every layer in one pass over the text."""
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
        check_place(out)  # before minutes of work
    source: VectorSource
    if vectors:
        source = read_static_vectors(vectors)
    else:
        source = ModelVectors(elmo.load(model, device=device, dtype=compute_dtype))
    record = run_probe(
        kind, source, data, column=column, config=FitConfig(epochs=epochs, seed=seed), limit=limit, cache=cache,
        device=choose_device(device), show=True,
    )  # fmt: skip
    fitted = kind in ("pos", "ner")
    record["command"] = command_line(
        "probe", kind, *data,
        vectors=vectors, model=None if vectors else model, column=column if kind == "pos" else None,
        epochs=epochs if fitted else None, seed=seed if fitted else None, limit=limit,
        compute_dtype=compute_dtype if compute_dtype != "float32" else None,
    )  # fmt: skip
    if out is not None:
        write_record(out, record)
    print(format_record(record) if as_json else table(record))
