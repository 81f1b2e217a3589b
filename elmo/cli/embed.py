"""`elmo embed`: embeds a file of sentences and writes a file of vectors, or many files and writes a folder."""

from __future__ import annotations

import dataclasses
import json
import os
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from elmo.cli.options import Encoding, InvalidBytes, OptionalDevice, Tokenizer, check_invalid_bytes, print_status
from elmo.errors import ConfigError
from elmo.files import require_extra

if TYPE_CHECKING:
    from elmo.embed.dump.job import DumpSummary
    from elmo.embed.dump.options import DumpOptions
    from elmo.embed.shards.options import ModelSettings, ReadOptions

EXAMPLE = "elmo embed corpus.txt corpus.hdf5 --model small --layers all --dtype float16"


def run(
    source: Annotated[
        str,
        typer.Argument(
            metavar="IN",
            help='Input with one sentence, or with --paragraphs one paragraph, per line (.gz .bz2 .xz .zst too); "-" '
            "is stdin. If OUT is a folder: a quoted glob, a folder or a file, of text, JSON lines, CSV or Parquet.",
        ),
    ],
    target: Annotated[
        str,
        typer.Argument(
            metavar="OUT",
            help='Output file; "-" writes JSON lines to stdout. With "/" at its end: a folder of Parquet.',
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="Name, folder or file of the model. Default: the shipped model."),
    ] = None,
    weights: Annotated[str | None, typer.Option(help="Weights file, if --model is an options file.")] = None,
    tokenizer: Tokenizer = None,
    layers: Annotated[
        str | None,
        typer.Option(
            help="Layers to write: all, top, average, concat (all layers at unit length, side by side), a layer number "
            "from 0, or mixing weights w0,w1,w2. Default: all, or average with --pool."
        ),
    ] = None,
    pool: Annotated[
        str | None, typer.Option(help="Pooling over the words: mean or max. Writes one vector per sentence.")
    ] = None,
    format_name: Annotated[
        str | None,
        typer.Option(
            "--format", help="Output format: hdf5, npz, safetensors, parquet, jsonl. Default: by the suffix of OUT."
        ),
    ] = None,
    dtype: Annotated[str, typer.Option(help="Number type of the vectors in OUT: float32, float16.")] = "float32",
    compute_dtype: Annotated[
        str, typer.Option(help="Number type of the computation: float32, bfloat16, int8, float16, float64.")
    ] = "float32",
    state: Annotated[
        str,
        typer.Option(
            help="LSTM state at the start of a sentence: reset (zeros), warm (after a fixed text), carry (continued)."
        ),
    ] = "reset",
    device: OptionalDevice = None,
    encoding: Encoding = "utf-8",
    errors: InvalidBytes = "strict",
    paragraphs: Annotated[
        bool,
        typer.Option(
            "--paragraphs",
            help="Split the lines into sentences; the output has one entry for each, and none for empty lines.",
        ),
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue an interrupted run from the blocks in OUT.parts.")
    ] = False,
    shard: Annotated[
        str | None,
        typer.Option(metavar="I/N", help="Embed only part I of N. `elmo merge OUT` joins the parts afterwards."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace OUT and discard the blocks of an interrupted run.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Start even if the free disk space seems insufficient.")
    ] = False,
    batch_size: Annotated[int, typer.Option(help="Maximum number of sentences per batch.")] = 256,
    block_tokens: Annotated[
        int, typer.Option(help="Maximum number of tokens per block; a killed run loses at most one block.")
    ] = 16384,
    column: Annotated[
        str | None,
        typer.Option(
            help="OUT is a folder: column of Parquet, CSV or TSV, or key of JSON lines, with the text. Default: text."
        ),
    ] = None,
    missing: Annotated[
        str | None,
        typer.Option(help="OUT is a folder: rows without a text are an error, or empty sentences. Default: error."),
    ] = None,
    shard_lines: Annotated[
        int | None,
        typer.Option(help="OUT is a folder: maximum number of lines per Parquet file. Default: 10,000."),
    ] = None,
    on_ray: Annotated[
        bool, typer.Option("--ray", help="OUT is a folder: embed in actors of a Ray cluster, or of this machine.")
    ] = False,
    ray_address: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Address of the Ray cluster. Default: RAY_ADDRESS, or this machine."),
    ] = None,
    actors: Annotated[
        int | None, typer.Option(help="Number of Ray actors. Default: one per GPU or CPU core of the cluster.")
    ] = None,
    use_sentence_keys: Annotated[
        bool, typer.Option("--use-sentence-keys", help="hdf5: name each dataset by its sentence, not by its number.")
    ] = False,
    forget_sentences: Annotated[
        bool, typer.Option("--forget-sentences", help="hdf5: do not write the dataset sentence_to_index.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a summary as one JSON object on stdout.")] = False,
    old_all: Annotated[bool, typer.Option("--all", hidden=True)] = False,
    old_top: Annotated[bool, typer.Option("--top", hidden=True)] = False,
    old_average: Annotated[bool, typer.Option("--average", hidden=True)] = False,
    options_file: Annotated[str | None, typer.Option("--options-file", hidden=True)] = None,
    weight_file: Annotated[str | None, typer.Option("--weight-file", hidden=True)] = None,
    cuda_device: Annotated[int | None, typer.Option("--cuda-device", hidden=True)] = None,
) -> None:
    """Embed a file with one sentence per line and write the vectors to a file, or many files to a folder.

    The suffix of OUT selects the format: .hdf5 (the layout of `allennlp elmo`), .npz, .safetensors, .parquet, .jsonl
    (also .gz .bz2 .xz .zst). Raw text is tokenised; pass --tokenizer whitespace if the text is already tokenised.
    An interrupted run leaves its finished blocks in OUT.parts; the same command with --resume continues it and writes
    the same bytes. If OUT ends in "/" or is a folder, it gets Parquet files and a manifest, in one process or with
    --ray; the same command continues an interrupted run.
    AllenNLP's flags --all --top --average --options-file --weight-file --cuda-device are accepted too.
    """
    from elmo.embed.dump.options import DumpOptions, parse_shard
    from elmo.embed.dump.target import check_target, is_finished

    old_layers = [name for name, is_set in (("all", old_all), ("top", old_top), ("average", old_average)) if is_set]
    old_device = None if cuda_device is None else "cpu" if cuda_device < 0 else f"cuda:{cuda_device}"
    options = DumpOptions(
        layers=_single_value("--layers, --all, --top, --average", layers, *old_layers) or None,
        dtype=dtype,
        pool=pool,
        format=format_name,
        encoding=encoding,
        errors=check_invalid_bytes(errors),
        paragraphs=paragraphs,
        use_sentence_keys=use_sentence_keys,
        forget_sentences=forget_sentences,
        resume=resume,
        shard=parse_shard(shard) if shard is not None else None,
        overwrite=overwrite,
        force=force,
        batch_size=batch_size,
        block_tokens=block_tokens,
        show_progress=True,
    )
    model_name = _single_value("--model and --options-file", model, options_file) or "default"
    weights_name = _single_value("--weights and --weight-file", weights, weight_file)
    device_name = _single_value("--device and --cuda-device", device, old_device) or "auto"
    if on_ray or target.endswith("/") or os.path.isdir(target):
        if paragraphs:
            raise ConfigError(
                "--paragraphs is for an output that is one file; a folder has one row per line.",
                "Give OUT the name of a file, or put one sentence on each line.",
            )
        from elmo.embed.shards.options import ModelSettings, ReadOptions

        given = {"column": column, "missing": missing, "shard_rows": shard_lines}
        read = ReadOptions(
            encoding=options.encoding,
            errors=options.errors,
            **{name: value for name, value in given.items() if value is not None},  # type: ignore[arg-type]
        )
        settings = ModelSettings(
            model=model_name, weights=weights_name, dtype=compute_dtype, tokenizer=tokenizer, state=state
        )
        if not on_ray and (ray_address, actors) != (None, None):
            raise ConfigError("--ray-address and --actors are for --ray.")
        cluster = (ray_address, actors) if on_ray else None
        _embed_folder(source, target, settings, options, read, device_name, cluster, as_json)
        return
    if (column, missing, shard_lines, ray_address, actors) != (None,) * 5:
        raise ConfigError(
            "--column, --missing, --shard-lines, --ray-address and --actors are for an output that is a folder.",
            'End OUT in "/".',
        )
    checked_target = check_target(source, target, options)  # before torch and the model are loaded (seconds)

    from elmo.embed.dump.job import dump, finished_summary

    if is_finished(checked_target, options):
        _print_summary(finished_summary(checked_target), shard, as_json)
        return
    from elmo.embed.load import load

    _check_compute_dtype(compute_dtype)
    embedder = load(model_name, weights_name, device=device_name, dtype=compute_dtype, tokenizer=tokenizer, state=state)
    summary = dump(embedder, source, target, options, say=print_status)
    _print_summary(summary, shard, as_json)


def _embed_folder(
    source: str,
    target: str,
    model: ModelSettings,
    options: DumpOptions,
    read: ReadOptions,
    device: str,
    cluster: tuple[str | None, int | None] | None,  # the address and the number of actors, with --ray
    as_json: bool,
) -> None:
    """Embeds files into a folder of Parquet shards."""
    from elmo.embed.shards.source_file import find_files
    from elmo.embed.shards.target import check_folder

    require_extra("pyarrow", "parquet")
    check_folder(target, options)  # before torch and the model are loaded (seconds)
    find_files(source)
    if cluster is not None:
        require_extra("ray", "ray")
    _check_compute_dtype(model.dtype)

    from elmo.embed.shards.job import OneProcess, Runner, embed_files

    runner: AbstractContextManager[Runner] = nullcontext(OneProcess(device))
    if cluster is not None:
        from elmo.integrations.ray import connect

        runner = connect(cluster[0], device=device, num_actors=cluster[1])
    with runner as connected:
        summary = embed_files(source, target, model, options, read, runner=connected, say=print_status)
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(summary)))
        return
    print_status(
        f"{summary.path}: {summary.files:,} files, {summary.shards:,} shards ({summary.shards_kept:,} of an earlier "
        f"run), {summary.lines:,} lines, {summary.tokens:,} tokens, {summary.bytes / 1e6:,.1f} MB, "
        f"{summary.seconds:.1f} s, {summary.tokens_per_second:,.0f} tokens/s"
    )


def _check_compute_dtype(name: str) -> None:
    from elmo.embed.run.executor import DTYPES

    if name not in DTYPES:
        raise ConfigError(f"--compute-dtype is {name!r}; expected one of {', '.join(DTYPES)}.")


def _print_summary(summary: DumpSummary, shard: str | None, as_json: bool) -> None:
    text = (
        f"{summary.path}: {summary.lines:,} lines, {summary.tokens:,} tokens, {summary.bytes / 1e6:,.1f} MB, "
        f"{summary.seconds:.1f} s, {summary.tokens_per_second:,.0f} tokens/s"
    )
    if shard is not None:
        text = (
            f"shard {shard}: {summary.blocks:,} blocks, {summary.tokens:,} tokens, {summary.tokens_per_second:,.0f} "
            "tokens/s; when all shards are complete, run: elmo merge OUT"
        )
    if summary.finished_before:
        text = (
            f"{summary.path} is finished: it exists, and no blocks of an interrupted run are left. Its input and "
            "settings were not compared; --overwrite embeds the input again."
        )
    facts = json.dumps(dataclasses.asdict(summary) | {"shard": shard})
    if as_json and summary.path != "-":
        typer.echo(facts)
    else:
        print_status(facts if as_json else text)


def _single_value(flags: str, *values: str | None) -> str | None:
    """The only value that is not None, or None; more than one is an error that names the flags."""
    given = [value for value in values if value is not None]
    if len(given) > 1:
        raise ConfigError(f"{flags} set the same option; give only one of them.")
    return given[0] if given else None
