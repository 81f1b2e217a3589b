"""`elmo prepare`: converts text files to the folder that pretraining reads, or only checks them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmo.cli.options import (
    TEXT_FILES,
    Encoding,
    Heldout,
    Languages,
    Temperature,
    drop_unset,
    heldout_settings,
    parse_languages,
    report_folders,
)
from elmo.errors import ConfigError

if TYPE_CHECKING:
    from elmo.pretrain.data.prepared import PreparedData

EXAMPLE = "elmo prepare 'corpus/*.txt.gz' --tokenizer default --out run/data"


def run(
    files: Annotated[list[str] | None, typer.Argument(help=f"Text: {TEXT_FILES}; - is stdin.")] = None,
    language: Languages = None,
    temperature: Temperature = None,
    out: Annotated[Path | None, typer.Option(help="Output folder.")] = None,
    vocab: Annotated[
        Path | None,
        typer.Option(
            help="Vocabulary of the softmax, one word per line. Default: the most frequent words of the text."
        ),
    ] = None,
    max_vocab: Annotated[int, typer.Option(help="Maximum number of lines of a counted vocabulary.")] = 100_000,
    min_count: Annotated[int, typer.Option(help="Minimum count of a word in a counted vocabulary.")] = 2,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="Tokenizer for raw text with one paragraph per line: default (English), unicode (any language), "
            "spacy:LANG, moses:LANG, whitespace."
        ),
    ] = None,
    heldout: Heldout = None,
    max_chars: Annotated[
        int, typer.Option(help="Characters (bytes) per word, including two boundary marks; longer words are cut.")
    ] = 50,
    specials: Annotated[
        str, typer.Option(help="Handling of <S>, </S> and <UNK> in the text: refuse, escape, or keep (only <UNK>).")
    ] = "refuse",
    encoding: Encoding = "utf-8",
    errors: Annotated[
        str,
        typer.Option(
            help="Handling of invalid bytes, and of damaged or empty files: strict (stop), replace (the bytes), or "
            "skip (the files)."
        ),
    ] = "strict",
    workers: Annotated[int | None, typer.Option(help="Number of processes. Default: one per core.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Only read the text and report problems.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output folder if it exists.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Prepare text for pretraining: tokenise it, count words, hold sentences out and write memory-mapped shards.

    The text has one tokenised sentence per line, unless --tokenizer names a tokenizer for raw text. A second run with
    the same text and options finds the finished folder and does nothing. `elmo pretrain --out RUN` with this text and
    these options uses the folder RUN/data.
    """
    from elmo.pretrain.data.corpus import Reading
    from elmo.pretrain.data.preflight import preflight, preflight_warnings
    from elmo.pretrain.data.prepare import prepare
    from elmo.pretrain.data.prepare_config import PrepareConfig
    from elmo.pretrain.data.text_files import find_text
    from elmo.pretrain.data.vocabulary import read_vocabulary

    tokenize = None if tokenizer == "none" else tokenizer
    reading = Reading(tokenize=tokenize, specials=specials, errors=errors, encoding=encoding)
    shared: dict[str, Any] = {"max_vocab": max_vocab, "min_count": min_count, "max_chars": max_chars}
    text = drop_unset(languages=parse_languages(language), temperature=temperature)
    text |= heldout_settings(heldout, by_language=language is not None)
    config = PrepareConfig(
        files=tuple(files or ()),
        reading=reading,
        vocab_path=None if vocab is None else str(vocab),
        **shared,
        **text,
    )
    if not config.training_files:
        raise ConfigError("No text files were given.", f"Example: {EXAMPLE}")
    report_folders(config.training_files)
    if check:
        find_text(config)
        vocabulary = read_vocabulary(vocab) if vocab else None
        report = preflight(config.training_files, reading, vocab=vocabulary, num_workers=workers, **shared)
        typer.echo(json.dumps(report.to_dict(), ensure_ascii=False) if as_json else "\n".join(report.lines()))
        raise typer.Exit(1 if report.errors else 0)
    if out is None:
        raise ConfigError("No output folder was given.", "Give --out DIR, or --check to only check the text.")
    if not out.exists():
        for warning in preflight_warnings(config, workers):
            typer.echo(f"warning: {warning}", err=True)
    data = prepare(config, out, num_workers=workers, overwrite=overwrite, progress=True)
    facts = _facts(data)
    if as_json:
        typer.echo(json.dumps(facts, ensure_ascii=False))
        return
    for name, value in facts.items():
        typer.echo(f"{name:<22} {value:,}" if isinstance(value, int) else f"{name:<22} {value}")


def _facts(data: PreparedData) -> dict[str, Any]:
    manifest = data.manifest
    skipped = [source["path"] for source in manifest["sources"] if source["skipped"]]
    return {
        "folder": str(data.folder),
        "sentences": data.train.num_sentences,
        "words": data.train.num_tokens,
        "heldout_sentences": data.heldout.num_sentences,
        "heldout_words": data.heldout.num_tokens,
        "different_words": data.num_types,
        "vocabulary": data.vocab_size,
        "unknown_share": round(manifest["unknown_share"]["train"], 6),
        "heldout_unknown_share": round(manifest["unknown_share"]["heldout"], 6),
        "cut_share": round(manifest["cut_share"], 6),
        "shards": len(data.train.shards),
        "fingerprint": data.fingerprint,
        **{f"share_of_{language.name}": round(language.share, 4) for language in data.languages},
    } | ({"skipped": skipped} if skipped else {})
