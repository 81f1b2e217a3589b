"""`elmo embed`: a file of sentences to a file of vectors."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from elmo.errors import ConfigError

if TYPE_CHECKING:
    from elmo.embed.dump.job import DumpSummary

EXAMPLE = "elmo embed corpus.txt corpus.hdf5 --model small --layers all --dtype float16"


def run(
    source: Annotated[str, typer.Argument(metavar="IN", help='One sentence a line; .gz .bz2 .xz .zst; "-": stdin.')],
    target: Annotated[str, typer.Argument(metavar="OUT", help='The file to write; "-": jsonl to stdout.')],
    model: Annotated[str | None, typer.Option("--model", "-m", help="A name, folder, zip or file.")] = None,
    weights: Annotated[str | None, typer.Option(help="Weights file, where --model is an options file.")] = None,
    tokenizer: Annotated[
        str, typer.Option(help="default, spacy:LANG, moses:LANG; whitespace for text that is tokenised already.")
    ] = "default",
    layers: Annotated[
        str | None, typer.Option(help="all (unless given), top, average, a number from 0, or weights w0,w1,w2.")
    ] = None,
    pool: Annotated[str | None, typer.Option(help="mean or max: one vector a sentence.")] = None,
    format_name: Annotated[
        str | None, typer.Option("--format", help="hdf5, npz, safetensors, parquet, jsonl; else by OUT's suffix.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="Of the vectors in OUT: float32, float16.")] = "float32",
    compute_dtype: Annotated[
        str, typer.Option(help="Of the computation: float32, bfloat16, int8, float16, float64.")
    ] = "float32",
    state: Annotated[str, typer.Option(help="What a sentence starts from: reset, warm, carry.")] = "reset",
    device: Annotated[str | None, typer.Option(help="auto (unless given), cpu, cuda, cuda:1, mps.")] = None,
    errors: Annotated[str, typer.Option(help="Bytes that are not UTF-8: strict, replace.")] = "strict",
    resume: Annotated[bool, typer.Option("--resume", help="Continue what a stopped run left in OUT.parts.")] = False,
    shard: Annotated[str | None, typer.Option(metavar="I/N", help="Only part I of N; then `elmo merge OUT`.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT, forget a stopped run.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Begin even if the disk looks too small.")] = False,
    batch_size: Annotated[int, typer.Option(help="Most sentences at once.")] = 256,
    block_tokens: Annotated[int, typer.Option(help="Most tokens of a block: what a killed run loses.")] = 16384,
    use_sentence_keys: Annotated[
        bool, typer.Option("--use-sentence-keys", help="hdf5: name datasets by sentence, not by number.")
    ] = False,
    forget_sentences: Annotated[
        bool, typer.Option("--forget-sentences", help="hdf5: leave sentence_to_index out.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="At the end, one JSON object on stdout.")] = False,
    old_all: Annotated[bool, typer.Option("--all", hidden=True)] = False,
    old_top: Annotated[bool, typer.Option("--top", hidden=True)] = False,
    old_average: Annotated[bool, typer.Option("--average", hidden=True)] = False,
    options_file: Annotated[str | None, typer.Option("--options-file", hidden=True)] = None,
    weight_file: Annotated[str | None, typer.Option("--weight-file", hidden=True)] = None,
    cuda_device: Annotated[int | None, typer.Option("--cuda-device", hidden=True)] = None,
) -> None:
    """Embed a file, one sentence a line, into a file of vectors.

    OUT's suffix says the format: .hdf5 (as `allennlp elmo` wrote it), .npz, .safetensors, .parquet, .jsonl (also .gz
    .bz2 .xz .zst). Raw text is tokenised; for text that is tokenised already pass --tokenizer whitespace. A run that
    is stopped keeps its finished blocks in OUT.parts: the same command with --resume continues it and gives the same
    bytes. The old flags --all --top --average --options-file --weight-file --cuda-device work too.
    """
    from elmo.embed.dump.options import DumpOptions, parse_shard
    from elmo.embed.dump.target import check_target

    named = [name for name, on in (("all", old_all), ("top", old_top), ("average", old_average)) if on]
    device_name = None if cuda_device is None else "cpu" if cuda_device < 0 else f"cuda:{cuda_device}"
    if errors not in ("strict", "replace"):
        raise ConfigError(f"--errors is {errors!r}; expected strict or replace.")
    options = DumpOptions(
        layers=_one("--layers, --all, --top, --average", layers, *named) or "all",
        dtype=dtype,
        pool=pool,
        format=format_name,
        errors="replace" if errors == "replace" else "strict",
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
    model_name = _one("--model and --options-file", model, options_file) or "default"
    weights_name = _one("--weights and --weight-file", weights, weight_file)
    chosen_device = _one("--device and --cuda-device", device, device_name) or "auto"
    check_target(source, target, options)  # before the seconds that torch and the model take

    from elmo.embed.dump.job import dump
    from elmo.embed.load import load

    embedder = load(
        model_name, weights_name, device=chosen_device, dtype=compute_dtype, tokenizer=tokenizer, state=state
    )
    summary = dump(embedder, source, target, options, say=_say)
    _report(summary, shard, as_json)


def _report(summary: DumpSummary, shard: str | None, as_json: bool) -> None:
    done = (
        f"{summary.path}: {summary.lines:,} lines, {summary.tokens:,} tokens, {summary.bytes / 1e6:,.1f} MB, "
        f"{summary.seconds:.1f} s, {summary.tokens_per_second:,.0f} tokens/s"
    )
    if shard is not None:
        done = (
            f"shard {shard}: {summary.blocks:,} blocks, {summary.tokens:,} tokens, {summary.tokens_per_second:,.0f} "
            "tokens/s; when all shards are done: elmo merge OUT"
        )
    facts = json.dumps(dataclasses.asdict(summary) | {"shard": shard})
    if as_json and summary.path != "-":
        typer.echo(facts)
    else:
        _say(facts if as_json else done)


def _one(flags: str, *given: str | None) -> str | None:
    values = [value for value in given if value is not None]
    if len(values) > 1:
        raise ConfigError(f"{flags} say the same thing; give one of them.")
    return values[0] if values else None


def _say(text: str) -> None:
    if sys.stderr is not None:
        print(text, file=sys.stderr, flush=True)
