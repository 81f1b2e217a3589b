"""`elmo similar`: the words of a corpus nearest to a word in a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmo.cli.command_line import command_line
from elmo.cli.options import Encoding, Tokenizer, stated_encoding
from elmo.errors import ConfigError, DataError

if TYPE_CHECKING:
    from elmo.analysis.neighbors import Query, SearchResult
    from elmo.embed.embedder import Embedder

EXAMPLE = 'elmo similar "He sat on the bank of the river ." bank corpus.txt --same-word --index index/'


def run(
    sentence: Annotated[str, typer.Argument(help="A sentence that contains the word.")],
    word: Annotated[str, typer.Argument(help="The word, or its number in the sentence (from 0).")],
    corpus: Annotated[Path, typer.Argument(help="Text with one sentence per line; compressed by suffix, - for stdin.")],
    beside: Annotated[
        list[str] | None, typer.Option(help="Another sentence with the word, searched for too; may be repeated.")
    ] = None,
    index: Annotated[
        Path | None, typer.Option(help="Folder in which the corpus's vectors are stored for later queries.")
    ] = None,
    paragraphs: Annotated[bool, typer.Option("--paragraphs", help="Split the corpus's lines into sentences.")] = False,
    vectors: Annotated[
        str | None, typer.Option(help="Static vectors whose neighbours are shown too, in word2vec's text format.")
    ] = None,
    model: Annotated[str, typer.Option(help="Name, folder or file of the model.")] = "default",
    tokenizer: Tokenizer = None,
    encoding: Encoding = "utf-8",
    layers: Annotated[str, typer.Option(help="top, average, a number, or weights.")] = "top",
    k: Annotated[int, typer.Option("-k", min=1, help="Number of neighbours to show.")] = 10,
    same_word: Annotated[bool, typer.Option("--same-word", help="Only other occurrences of the same word.")] = False,
    state: Annotated[str, typer.Option(help="reset or warm.")] = "reset",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print a record for `elmo report`.")] = False,
) -> None:
    """Show where a corpus uses a word as this sentence does, and the word's neighbours without context."""
    import elmo
    from elmo.analysis.neighbors import find_neighbors, static_neighbors
    from elmo.probes.vector_source import read_static_vectors
    from elmo.records import format_record, make_record

    if index is not None and index.exists() and not index.is_dir():
        raise ConfigError(f"--index {index} is a file.", "Give a folder; it is made if it does not exist.")
    embedder = elmo.load(model, tokenizer=tokenizer, state=state, device=device)
    queries = _queries(embedder, [sentence, *(beside or [])], word)
    query_word = queries[0].word
    without_context: list[dict[str, Any]] = []
    if vectors is not None:  # before the corpus, so that a bad file is reported before minutes of work
        static = read_static_vectors(vectors)
        row = static.row(query_word)
        if row is None:
            raise DataError(f"{vectors} has no vector of {query_word!r}.", "Give another word or other vectors.")
        nearest_words = static_neighbors(query_word, static.words, static.matrix, static.matrix[row], k=k)
        without_context.append({"vectors": static.identity(), "words": [vars(n) for n in nearest_words]})
    result = find_neighbors(
        embedder, queries, _sentences(embedder, corpus, paragraphs, encoding), layers=layers, k=k,
        word=query_word if same_word else None, index=index, show=True,
    )  # fmt: skip
    token_layer = {"vectors": {"name": "the model's token layer"}, "words": [vars(n) for n in result.without_context]}
    without_context.insert(0, token_layer)
    if as_json:
        command = command_line(
            "similar", sentence, word, corpus.name,  # file names without folders, because the record is read elsewhere
            beside=beside, paragraphs=paragraphs, vectors=Path(vectors).name if vectors else None, model=model,
            tokenizer=tokenizer, encoding=stated_encoding(encoding), layers=layers, k=k, state=state,
            same_word=same_word, json=True,
        )  # fmt: skip
        settings = {
            "layers": layers,
            "k": k,
            "tokenizer": embedder.tokenizer_name,
            "state": state,
            "same_word": same_word,
        }
        values = {
            "settings": {**settings, "paragraphs": paragraphs},
            **_record_values(embedder, queries, result, corpus),
            "without_context": without_context,
        }
        print(format_record(make_record("neighbours", values, command=command)))
        return
    for query, neighbors in zip(queries, result.neighbors, strict=True):
        print(f"in context: {mark_word(query.tokens, query.position, 99)}")
        for neighbor in neighbors:
            print(f"{neighbor.score:6.3f}  {neighbor.line:>7}  {mark_word(neighbor.tokens, neighbor.position)}")
    for static_list in without_context:
        near_words = ", ".join(f"{n['word']} {n['score']:.2f}" for n in static_list["words"])
        print(f"without context ({static_list['vectors']['name']}): {near_words}")
    for number in range(1, len(queries)):
        print(f"cosine of {query_word!r} in sentences 1 and {number + 1}: {result.cosines[0, number]:.3f}")


def mark_word(tokens: Sequence[str], position: int, width: int = 10) -> str:
    """The word at a position in brackets, with up to `width` words on both sides."""
    from elmo.report.section_neighbours import mark_word as mark

    return mark(tokens, position, width, ellipsis="...")


def _queries(embedder: Embedder, sentences: list[str], word: str) -> list[Query]:
    """The word in each sentence; if `word` is a number, it is the position in the first sentence."""
    from elmo.analysis.neighbors import Query

    queries: list[Query] = []
    for sentence in sentences:
        tokens = tuple(token.text for token in embedder.tokenize(sentence))
        form = queries[0].word if queries else word
        if form in tokens:
            position = tokens.index(form)
        elif not queries and word.isdecimal() and int(word) < len(tokens):
            position = int(word)
        else:
            raise DataError(f"{form!r} is not among the sentence's tokens: {' '.join(tokens)}", "Name one of them.")
        queries.append(Query(tokens, position))
    return queries


def _sentences(embedder: Embedder, corpus: Path, paragraphs: bool, encoding: str) -> Iterator[tuple[str, ...]]:
    from elmo.text.lines import read_lines
    from elmo.text.sentences import split_sentences

    for line in read_lines(corpus, encoding=encoding):
        for start, end in split_sentences(line) if paragraphs else [(0, len(line))]:
            yield tuple(token.text for token in embedder.tokenize(line[start:end]))


def _record_values(embedder: Embedder, queries: list[Query], result: SearchResult, corpus: Path) -> dict[str, Any]:
    from elmo.embed.model_checksum import model_checksum
    from elmo.files import sha256_file

    return {
        "vectors": {"name": embedder.name, "trained": embedder.trained, "sha256": model_checksum(embedder)},
        "corpus": {
            "file": corpus.name,
            "sha256": None if str(corpus) == "-" else sha256_file(corpus),
            "sentences": result.num_sentences,
            "words": result.num_words,
        },
        "queries": [
            {
                "tokens": query.tokens,
                "position": query.position,
                "neighbours": [
                    {"score": round(n.score, 4), "line": n.line, "position": n.position, "tokens": n.tokens}
                    for n in neighbors
                ],
            }
            for query, neighbors in zip(queries, result.neighbors, strict=True)
        ],
        "cosines": [[round(float(value), 4) for value in row] for row in result.cosines],
    }
