"""`elmo similar`: the words of a corpus nearest to a word in a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmo.cli.command_line import command_line
from elmo.errors import ConfigError, DataError

if TYPE_CHECKING:
    from elmo.analysis.neighbors import Query
    from elmo.analysis.similar import Similar
    from elmo.embed.embedder import Embedder

EXAMPLE = 'elmo similar "He sat on the bank of the river ." bank corpus.txt --same-word --index index/'


def run(
    sentence: Annotated[str, typer.Argument(help="A sentence that has the word in it.")],
    word: Annotated[str, typer.Argument(help="The word, or its number in the sentence (from 0).")],
    corpus: Annotated[Path, typer.Argument(help="Text, one sentence a line; compressed by suffix, - for stdin.")],
    beside: Annotated[
        list[str] | None, typer.Option(help="Another sentence with the word, answered too; may be repeated.")
    ] = None,
    index: Annotated[
        Path | None, typer.Option(help="Folder: the corpus's vectors are kept there, and used by the next query.")
    ] = None,
    paragraphs: Annotated[bool, typer.Option("--paragraphs", help="Split the corpus's lines into sentences.")] = False,
    vectors: Annotated[
        str | None, typer.Option(help="Static vectors to show neighbours of, too: word2vec's text format.")
    ] = None,
    model: Annotated[str, typer.Option(help="Name, folder or file of the model.")] = "default",
    tokenizer: Annotated[str, typer.Option(help="default, whitespace, spacy:LANG, moses:LANG.")] = "default",
    layers: Annotated[str, typer.Option(help="top, average, a number, or weights.")] = "top",
    k: Annotated[int, typer.Option("-k", min=1, help="How many to show.")] = 10,
    same_word: Annotated[bool, typer.Option("--same-word", help="Only other occurrences of the same word.")] = False,
    state: Annotated[str, typer.Option(help="reset or warm.")] = "reset",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="All of it as a record for `elmo report`.")] = False,
) -> None:
    """Show where a word is used as in this sentence, and its neighbours without context beside."""
    import elmo
    from elmo.analysis.similar import similar
    from elmo.analysis.static_neighbors import static_neighbors
    from elmo.probes.vector_source import read_static_vectors
    from elmo.records import format_record, make_record

    if index is not None and index.exists() and not index.is_dir():
        raise ConfigError(f"--index {index} is a file.", "Give a folder; it is made where there is none.")
    embedder = elmo.load(model, tokenizer=tokenizer, state=state, device=device)
    queries = _queries(embedder, [sentence, *(beside or [])], word)
    asked = queries[0].word
    without: list[dict[str, Any]] = []
    if vectors is not None:  # before the corpus: a bad file is told before minutes of work
        static = read_static_vectors(vectors)
        row = static.row(asked)
        if row is None:
            raise DataError(f"{vectors} has no vector of {asked!r}.", "Ask for another word, or give other vectors.")
        alike = static_neighbors(asked, static.words, static.matrix, static.matrix[row], k=k)
        without.append({"vectors": static.identity(), "words": [vars(one) for one in alike]})
    found = similar(
        embedder, queries, _sentences(embedder, corpus, paragraphs), layers=layers, k=k,
        word=asked if same_word else None, index=index, show=True,
    )  # fmt: skip
    tokens_alone = {"vectors": {"name": "the model's token layer"}, "words": [vars(n) for n in found.without_context]}
    without.insert(0, tokens_alone)
    if as_json:
        command = command_line(
            "similar", sentence, word, corpus.name,  # names alone: a record is read elsewhere
            beside=beside, paragraphs=paragraphs, vectors=Path(vectors).name if vectors else None, model=model,
            tokenizer=tokenizer, layers=layers, k=k, state=state, same_word=same_word, json=True,
        )  # fmt: skip
        settings = {"layers": layers, "k": k, "tokenizer": tokenizer, "state": state, "same_word": same_word}
        values = {"settings": {**settings, "paragraphs": paragraphs}, **_record(embedder, queries, found, corpus)}
        print(format_record(make_record("neighbours", {**values, "without_context": without}, command=command)))
        return
    for query, near in zip(queries, found.neighbours, strict=True):
        print(f"in context: {marked(query.tokens, query.position, 99)}")
        for n in near:
            print(f"{n.score:6.3f}  {n.line:>7}  {marked(n.tokens, n.position)}")
    for one in without:
        near_words = ", ".join(f"{n['word']} {n['score']:.2f}" for n in one["words"])
        print(f"without context ({one['vectors']['name']}): {near_words}")
    for number in range(1, len(queries)):
        print(f"cosine of {asked!r} in sentences 1 and {number + 1}: {found.cosines[0, number]:.3f}")


def marked(tokens: tuple[str, ...], position: int, width: int = 10) -> str:
    """The words around a position, the one meant in brackets."""
    start, end = max(0, position - width), position + width + 1
    words = [f"[{t}]" if i == position else t for i, t in enumerate(tokens)][start:end]
    return " ".join([*(["..."] if start else []), *words, *(["..."] if end < len(tokens) else [])])


def _queries(embedder: Embedder, sentences: list[str], word: str) -> list[Query]:
    """The word in each sentence; a number says where it stands in the first."""
    from elmo.analysis.neighbors import Query

    found: list[Query] = []
    for sentence in sentences:
        tokens = tuple(token.text for token in embedder.tokenize(sentence))
        sought = found[0].word if found else word
        if sought not in tokens and (found or not (word.isdigit() and int(word) < len(tokens))):
            raise DataError(f"{sought!r} is not among the sentence's tokens: {' '.join(tokens)}", "Name one of them.")
        found.append(Query(tokens, tokens.index(sought) if sought in tokens else int(word)))
    return found


def _sentences(embedder: Embedder, corpus: Path, paragraphs: bool) -> Iterator[tuple[str, ...]]:
    from elmo.text.lines import read_lines
    from elmo.text.sentences import split_sentences

    for line in read_lines(corpus):
        for start, end in split_sentences(line) if paragraphs else [(0, len(line))]:
            yield tuple(token.text for token in embedder.tokenize(line[start:end]))


def _record(embedder: Embedder, queries: list[Query], found: Similar, corpus: Path) -> dict[str, Any]:
    from elmo.embed.model_checksum import model_checksum
    from elmo.files import sha256_file

    return {
        "vectors": {"name": embedder.name, "trained": embedder.trained, "sha256": model_checksum(embedder)},
        "corpus": {
            "file": corpus.name,
            "sha256": None if str(corpus) == "-" else sha256_file(corpus),
            "sentences": found.num_sentences,
            "words": found.num_words,
        },
        "queries": [
            {
                "tokens": query.tokens,
                "position": query.position,
                "neighbours": [
                    {"score": round(n.score, 4), "line": n.line, "position": n.position, "tokens": n.tokens}
                    for n in near
                ],
            }
            for query, near in zip(queries, found.neighbours, strict=True)
        ],
        "cosines": [[round(float(value), 4) for value in row] for row in found.cosines],
    }
