"""`elmo export words`: one vector per word, for gensim, the Embedding Projector and other tools for static vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from elmo.cli.options import Device, Encoding, ModelName, Overwrite, Paragraphs, Tokenizer, print_status
from elmo.errors import ConfigError, OutputError

EXAMPLE = "elmo export words words.vec --corpus corpus.txt --max-words 20000"
FORMATS = {".txt": "word2vec", ".vec": "word2vec", ".bin": "word2vec-binary"}  # by suffix
PROJECTOR = "projector"


def export_words(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="File to write; a folder with --format projector.")],
    words: Annotated[
        str | None,
        typer.Option(
            help="File with one word per line; - for stdin. Default: the words of --corpus, or of the model itself."
        ),
    ] = None,
    corpus: Annotated[
        str | None,
        typer.Option(
            help="Text with one sentence per line (.gz .bz2 .xz .zst too): a word gets the mean of the vectors of its "
            "occurrences. Without it, words get the vectors of the token layer, which have no context."
        ),
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(help="Layers for --corpus: top, average, concat, a number, or weights. Default: average."),
    ] = None,
    format_name: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="Output format: word2vec (text; .vec, .txt), word2vec-binary (.bin), or projector (a folder with "
            "vectors.tsv and metadata.tsv for the Embedding Projector). Default: by the suffix of OUT.",
        ),
    ] = None,
    max_words: Annotated[
        int | None,
        typer.Option(min=1, help="Number of words to write, the most frequent ones. Default: 50000."),
    ] = None,
    min_count: Annotated[
        int | None, typer.Option(min=1, help="Minimum number of occurrences of a word of --corpus. Default: 1.")
    ] = None,
    paragraphs: Paragraphs = False,
    model: ModelName = "default",
    tokenizer: Tokenizer = None,
    encoding: Encoding = "utf-8",
    device: Device = "auto",
    overwrite: Overwrite = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a line.")] = False,
) -> None:
    """Write one static vector per word in formats that gensim and the Embedding Projector read."""
    chosen_format = _format(out, format_name)
    _check_options(words, corpus, max_words, min_count, paragraphs)
    if not overwrite and out.exists():  # before the work, which can take long
        raise OutputError(f"{out} exists.", "Choose another name or pass --overwrite.")
    import elmo
    from elmo.embed.vocabulary_vectors import MAX_WORDS, read_word_list, vocabulary_vectors
    from elmo.text.word2vec_format import check_words, write_projector, write_word2vec

    listed = None if words is None else read_word_list(words, encoding)
    if listed is not None:
        check_words(listed)
    embedder = elmo.load(model, tokenizer=tokenizer, device=device)
    found = vocabulary_vectors(
        embedder, listed, corpus, layers=layers, max_words=max_words or MAX_WORDS, min_count=min_count or 1,
        split=paragraphs, encoding=encoding, show=True,
    )  # fmt: skip
    if chosen_format == PROJECTOR:
        write_projector(out, found.words, found.vectors, found.counts, overwrite=overwrite, show=True)
    else:
        is_binary = chosen_format == "word2vec-binary"
        write_word2vec(out, found.words, found.vectors, binary=is_binary, overwrite=overwrite, show=True)
    if found.absent:
        first = ", ".join(found.absent[:5]) + (", ..." if len(found.absent) > 5 else "")
        print_status(f"{len(found.absent):,} words do not occur in the corpus and were left out: {first}")
    num_words, dim = found.vectors.shape
    if as_json:
        facts = {"words": num_words, "dim": dim, "absent": len(found.absent), "format": chosen_format, "out": str(out)}
        typer.echo(json.dumps(facts, ensure_ascii=False))
        return
    typer.echo(f"{num_words:,} words, {dim} numbers each: {out}")


def _format(out: Path, name: str | None) -> str:
    known = list(dict.fromkeys([*FORMATS.values(), PROJECTOR]))
    if name is not None and name not in known:
        raise ConfigError(f"--format is {name!r}; expected one of {', '.join(known)}.")
    chosen = name or FORMATS.get(out.suffix)
    if chosen is None:
        suffixes = ", ".join(f"{suffix} ({chosen})" for suffix, chosen in FORMATS.items())
        raise ConfigError(f"{out} does not say which format to write.", f"Known: {suffixes}; or pass --format.")
    return chosen


def _check_options(
    words: str | None, corpus: str | None, max_words: int | None, min_count: int | None, paragraphs: bool
) -> None:
    if words is not None and (max_words or min_count):
        raise ConfigError("All words of --words are written.", "Leave --max-words and --min-count out.")
    if corpus is None and (min_count or paragraphs):
        raise ConfigError("--min-count and --paragraphs are about a corpus.", "Leave them out, or give --corpus.")
    if words == "-" and corpus == "-":
        raise ConfigError("--words and --corpus cannot both be standard input.", "Give a file for one of them.")
