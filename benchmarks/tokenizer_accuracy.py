"""How well do the tokenizers and sentence splitters agree with Universal Dependencies? Token F1 and sentence F1.

    python benchmarks/tokenizer_accuracy.py TREEBANKS [--split test] [--errors de]

TREEBANKS is a folder of CoNLL-U files named de-ud-test.conllu, or a .tar.xz archive of such a folder. The raw text is
put together from the word forms and SpaceAfter=No, a space between sentences. A multiword token ("du", "im") counts as
one token, as it is written. A token is right if its start and its end are those of a token of the treebank, and a
sentence likewise; F1 is computed over all of a language. Sentences are split from the whole text; tokens are split from
the sentences of the treebank. `--errors` lists the most frequent wrong tokens of a language instead. Ends with one JSON
line.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from elmo.text.metrics import ScoreCounts
from elmo.text.sentences import split_sentences
from elmo.text.tokenize import tokenizer

NAMES = {"default": "english", "unicode": "unicode"}  # tokenizer -> rules of the sentence splitter


@dataclass(frozen=True)
class Sentence:
    """The raw text of a sentence and the spans of its tokens."""

    text: str
    spans: list[tuple[int, int]]


def main() -> None:
    parser = argparse.ArgumentParser(description="Tokenizers and sentence splitters beside Universal Dependencies.")
    parser.add_argument("treebanks", type=Path)
    parser.add_argument("--split", default="test")
    parser.add_argument("--errors", metavar="LANGUAGE")
    args = parser.parse_args()
    rows: dict[str, dict[str, float]] = {}
    for language, lines in sorted(treebank_files(args.treebanks, args.split)):
        sentences = list(read_sentences(lines))
        if args.errors == language:
            print_errors(sentences)
        elif args.errors is None:
            rows[language] = {"tokens": sum(len(sentence.spans) for sentence in sentences), **scores(sentences)}
    if rows:
        columns = [f"{name} {unit}" for unit in ("tokens", "sentences") for name in NAMES]
        rows["mean"] = {key: sum(row[key] for row in rows.values()) / len(rows) for key in ("tokens", *columns)}
        print("| language | tokens |" + "".join(f" {column} |" for column in columns))
        print("|---|---|" + "---|" * len(columns))
        for language, row in rows.items():
            print(f"| {language} | {row['tokens']:,.0f} |" + "".join(f" {row[column]:.2f} |" for column in columns))
        print(json.dumps({"split": args.split, "f1": rows}))


def treebank_files(path: Path, split: str) -> Iterator[tuple[str, list[str]]]:
    """(language, lines) of each CoNLL-U file of the split in a folder or an archive."""
    suffix = f"-ud-{split}.conllu"
    if path.is_dir():
        for file in path.glob(f"*{suffix}"):
            yield file.name.removesuffix(suffix), file.read_text(encoding="utf-8").splitlines()
        return
    with tarfile.open(path) as archive:
        for member in archive:
            stream = archive.extractfile(member) if member.name.endswith(suffix) else None
            if stream is not None:
                text = io.TextIOWrapper(stream, encoding="utf-8").read()
                yield Path(member.name).name.removesuffix(suffix), text.splitlines()


def read_sentences(lines: list[str]) -> Iterator[Sentence]:
    """The sentences of a CoNLL-U file as raw text with tokens."""
    text, spans, inside = "", [], 0  # inside: last word of the current multiword token
    for line in [*lines, ""]:
        columns = line.split("\t")
        number = columns[0]
        if not line and spans:
            yield Sentence(text.rstrip(), spans)
            text, spans, inside = "", [], 0
        if len(columns) < 10 or "." in number or number.isdigit() and int(number) <= inside:
            continue
        if "-" in number:
            inside = int(number.partition("-")[2])
        spans.append((len(text), len(text) + len(columns[1])))
        text += columns[1] + ("" if "SpaceAfter=No" in columns[9] else " ")


def scores(sentences: list[Sentence]) -> dict[str, float]:
    """Token F1 and sentence F1 of each tokenizer and its rules for sentences, in percent."""
    document, gold = "", set()
    for sentence in sentences:
        gold.add((len(document), len(document) + len(sentence.text)))
        document += sentence.text + " "
    result: dict[str, float] = {}
    for name, rules in NAMES.items():
        tokenize = tokenizer(name)
        found = [{(token.start, token.end) for token in tokenize(sentence.text)} for sentence in sentences]
        correct = sum(len(spans & set(s.spans)) for spans, s in zip(found, sentences, strict=True))
        counts = ScoreCounts(
            correct=correct, predicted=sum(map(len, found)), gold=sum(len(sentence.spans) for sentence in sentences)
        )
        result[f"{name} tokens"] = counts.f1
        split = set(map(tuple, split_sentences(document, rules)))
        result[f"{name} sentences"] = ScoreCounts(correct=len(split & gold), predicted=len(split), gold=len(gold)).f1
    return result


def print_errors(sentences: list[Sentence]) -> None:
    """Prints the most frequent places where tokenizers differ from the treebank: theirs, and the treebank's."""
    for name in NAMES:
        wrong: Counter[tuple[str, str]] = Counter()
        for sentence in sentences:
            found = {(token.start, token.end) for token in tokenizer(name)(sentence.text)}
            for start, end in set(sentence.spans) - found:
                around = [s for s in sorted(found) if s[0] < end and start < s[1]]
                wrong[(" ".join(sentence.text[a:b] for a, b in around), sentence.text[start:end])] += 1
        print(f"{name}: {sum(wrong.values())} tokens of the treebank are missing")
        for (ours, theirs), count in wrong.most_common(40):
            print(f"  {count:4}  {ours!r} for {theirs!r}")


if __name__ == "__main__":
    main()
