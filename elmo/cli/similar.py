"""`elmo similar`: the words of a corpus nearest to a word in a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from elmo.errors import DataError

EXAMPLE = 'elmo similar "He sat on the bank of the river ." bank corpus.txt --same-word'


def run(
    sentence: Annotated[str, typer.Argument(help="A sentence that has the word in it.")],
    word: Annotated[str, typer.Argument(help="The word, or its number in the sentence (from 0).")],
    corpus: Annotated[Path, typer.Argument(help="Text, one sentence a line; compressed by suffix, - for stdin.")],
    model: Annotated[str, typer.Option(help="Name, folder or file of the model.")] = "default",
    tokenizer: Annotated[str, typer.Option(help="default, whitespace, spacy:LANG, moses:LANG.")] = "default",
    layers: Annotated[str, typer.Option(help="top, average, a number, or weights.")] = "top",
    k: Annotated[int, typer.Option("-k", min=1, help="How many to show.")] = 10,
    same_word: Annotated[bool, typer.Option("--same-word", help="Only other occurrences of the same word.")] = False,
    state: Annotated[str, typer.Option(help="reset or warm.")] = "reset",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON list.")] = False,
) -> None:
    """Show where a word is used as in this sentence."""
    import elmo
    from elmo.analysis.neighbors import neighbors
    from elmo.text.lines import read_lines

    embedder = elmo.load(model, tokenizer=tokenizer, state=state, device=device)
    tokens = [token.text for token in embedder.tokenize(sentence)]
    if word not in tokens and not (word.isdigit() and int(word) < len(tokens)):
        raise DataError(f"{word!r} is not among the sentence's tokens: {' '.join(tokens)}", "Name one of them.")
    position = tokens.index(word) if word in tokens else int(word)
    lines = ([token.text for token in embedder.tokenize(line)] for line in read_lines(corpus))
    only = tokens[position] if same_word else None
    found = neighbors(embedder, tokens, position, lines, layers=layers, k=k, word=only)
    if as_json:
        rows = [{"score": n.score, "line": n.line, "position": n.position, "tokens": n.tokens} for n in found]
        print(json.dumps(rows, ensure_ascii=False))
        return
    for n in found:
        print(f"{n.score:6.3f}  {n.line:>7}  {marked(n.tokens, n.position)}")


def marked(tokens: tuple[str, ...], position: int, width: int = 10) -> str:
    """The words around a position, the one meant in brackets."""
    start, end = max(0, position - width), position + width + 1
    words = [f"[{t}]" if i == position else t for i, t in enumerate(tokens)][start:end]
    return " ".join([*(["..."] if start else []), *words, *(["..."] if end < len(tokens) else [])])
