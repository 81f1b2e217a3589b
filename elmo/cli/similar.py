"""`elmo similar`: the words of a corpus nearest to a word in a sentence."""

from __future__ import annotations

import glob
import hashlib
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmo.cli.command_line import command_line
from elmo.cli.options import Device, Encoding, ModelName, Paragraphs, Tokenizer, report_folders, stated_encoding
from elmo.errors import ConfigError, DataError

if TYPE_CHECKING:
    from elmo.embed.embedder import Embedder
    from elmo.embed.neighbors import SearchResult

EXAMPLE = 'elmo similar "He sat on the bank of the river ." bank corpus.txt --same-word --index index/'


def run(
    sentence: Annotated[str, typer.Argument(help="A sentence that contains the word.")],
    word: Annotated[str, typer.Argument(help="The word, or its number in the sentence (from 0).")],
    corpus: Annotated[
        Path,
        typer.Argument(
            help="Text with one sentence per line: a file (.gz .bz2 .xz .zst too), a folder of .txt files, a quoted "
            "glob, or - for stdin."
        ),
    ],
    beside: Annotated[
        list[str] | None, typer.Option(help="Another sentence with the word, searched for too; may be repeated.")
    ] = None,
    index: Annotated[
        Path | None, typer.Option(help="Folder in which the corpus's vectors are stored for later queries.")
    ] = None,
    paragraphs: Paragraphs = False,
    vectors: Annotated[
        str | None, typer.Option(help="Static vectors whose neighbours are shown too, in word2vec's text format.")
    ] = None,
    model: ModelName = "default",
    tokenizer: Tokenizer = None,
    encoding: Encoding = "utf-8",
    layers: Annotated[
        str,
        typer.Option(
            help="Layers to compare: top, average, concat, a number, or weights. top is best for the senses of one "
            "word; concat (all layers at unit length, side by side) is best for the similarity of different words."
        ),
    ] = "top",
    k: Annotated[int, typer.Option("-k", min=1, help="Number of neighbours to show.")] = 10,
    same_word: Annotated[
        bool, typer.Option("--same-word", help="Only other occurrences of the same word, regardless of case.")
    ] = False,
    state: Annotated[str, typer.Option(help="LSTM state at the start of a sentence: reset or warm.")] = "reset",
    device: Device = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print a record for `elmo report`.")] = False,
) -> None:
    """Show where a corpus uses a word as this sentence does, and the word's neighbours without context.

    A line shows the cosine, the number of the sentence in the corpus, from 0, and the word in brackets. The word of
    the given sentence itself is left out, also where the corpus contains this sentence.
    """
    import elmo
    from elmo.embed.neighbors import static_neighbors, word_queries
    from elmo.probes.vector_source import read_static_vectors
    from elmo.records import format_record, make_record
    from elmo.text.lines import read_lines

    if index is not None and index.exists() and not index.is_dir():
        raise ConfigError(f"--index {index} is a file.", "Give a folder; it is made if it does not exist.")
    files = _corpus_files(corpus)
    embedder = elmo.load(model, tokenizer=tokenizer, state=state, device=device)
    chosen = _word_or_position(embedder, sentence, word)
    query_word = word_queries(embedder, [sentence, *(beside or [])], chosen)[0].word
    without_context: list[dict[str, Any]] = []
    if vectors is not None:  # before the corpus, so that a bad file is reported before minutes of work
        static = read_static_vectors(vectors)
        row = static.row(query_word)
        if row is None:
            raise DataError(f"{vectors} has no vector of {query_word!r}.", "Give another word or other vectors.")
        nearest_words = static_neighbors(query_word, static.words, static.matrix, static.matrix[row], k=k)
        without_context.append({"vectors": static.identity(), "words": [vars(n) for n in nearest_words]})
    lines = (line for path in files for line in read_lines(path, encoding=encoding))
    result = embedder.similar(
        sentence, chosen, lines, beside=beside or [], k=k, layers=layers, same_word=same_word, split=paragraphs,
        encoding=encoding, index=index, show_progress_bar=True,
    )  # fmt: skip
    queries = result.queries
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
            **_record_values(embedder, result, corpus, files),
            "without_context": without_context,
        }
        print(format_record(make_record("neighbours", values, command=command)))
        return
    for query, neighbors in zip(queries, result.neighbors, strict=True):
        print(f"in context: {mark_word(query.tokens, query.position, 99)}")
        for neighbor in neighbors:
            print(f"{neighbor.score:6.3f}  {neighbor.line:>7}  {mark_word(neighbor.tokens, neighbor.position)}")
        if not neighbors:
            print(f"no other use of {query.word!r} in the corpus (sentences: {result.num_sentences:,})")
    for static_list in without_context:
        near_words = ", ".join(f"{n['word']} {n['score']:.2f}" for n in static_list["words"])
        print(f"without context ({static_list['vectors']['name']}): {near_words}")
    for number in range(1, len(queries)):
        print(f"cosine of {query_word!r} in sentences 1 and {number + 1}: {result.cosines[0, number]:.3f}")


def mark_word(tokens: Sequence[str], position: int, width: int = 10) -> str:
    """The word at a position in brackets, with up to `width` words on both sides."""
    from elmo.report.section_neighbours import mark_word as mark

    return mark(tokens, position, width, ellipsis="...")


def _word_or_position(embedder: Embedder, sentence: str, word: str) -> str | int:
    """The word, or its position if it is a number that is not itself a word of the sentence."""
    from elmo.text.inputs import caseless

    tokens = [token.text for token in embedder.tokenize(sentence)]
    if word in tokens or word.isdecimal():
        return word if word in tokens else int(word)
    near = next((token for token in tokens if caseless(token) == caseless(word)), None)
    if near is not None:
        is_case = unicodedata.normalize("NFC", near) != unicodedata.normalize("NFC", word)
        raise DataError(
            f"{word!r} is not among the sentence's tokens: {' '.join(tokens)}",
            f"The sentence has {near!r}, which differs in {'case' if is_case else 'its Unicode form (NFC, NFD)'}.",
        )
    return word


def _corpus_files(corpus: Path) -> list[str]:
    """The files of the corpus: those of a folder or a glob, or the one that is named."""
    from elmo.pretrain.data.sources import find_sources

    if not corpus.is_dir() and (corpus.exists() or not glob.has_magic(str(corpus))):
        return [str(corpus)]
    report_folders([str(corpus)])
    return [source.path for source in find_sources([corpus])]


def _record_values(embedder: Embedder, result: SearchResult, corpus: Path, files: Sequence[str]) -> dict[str, Any]:
    from elmo.embed.model_checksum import model_checksum
    from elmo.files import sha256_file

    checksums = [] if str(corpus) == "-" else [sha256_file(path) for path in files]
    if len(checksums) > 1:  # one checksum of those of the files, in order
        checksums = [hashlib.sha256("\n".join(checksums).encode()).hexdigest()]
    return {
        "vectors": {"name": embedder.name, "trained": embedder.trained, "sha256": model_checksum(embedder)},
        "corpus": {
            "file": corpus.name,
            "sha256": checksums[0] if checksums else None,
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
            for query, neighbors in zip(result.queries, result.neighbors, strict=True)
        ],
        "cosines": [[round(float(value), 4) for value in row] for row in result.cosines],
    }
