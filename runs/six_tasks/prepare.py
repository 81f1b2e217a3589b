"""Prepares the open data sets for run_all.py: writes OUT/TASK/{train,dev,test}.*.xz and OUT/static.vec.xz.

    python runs/six_tasks/prepare.py --raw RAW --vectors static256.vec --out scratch/six

RAW contains ner/uner_en_ewt, sst, snli, squad, srl and coref as they are published. Three things are changed:

coref   one CoNLL file per split: the mentions are from OntoGUM's CoNLL files, which have no sentence boundaries; these
        are from the JSONL files, which lack nested mentions. Documents whose words are masked are excluded.
squad   the official dev file becomes the test file, scored once; about a tenth of the training paragraphs, selected by
        a hash of their text, becomes the dev file
vectors only for words of the data (as written, otherwise in lower case), rounded to --step: the file has a tenth of
        the size, and is the same for runs with and without ELMo
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import sys
from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from elmo.errors import DataError
from elmo.tasks.task import load_task
from elmo.text.lines import read_lines
from elmo.text.word2vec_format import as_vector, vector_lines

COPIED = {  # task: its files, which are copied without changes
    "ner": {s: f"ner/uner_en_ewt/{s}.iob2" for s in ("train", "dev", "test")},
    "sst": {s: f"sst/{s}.txt" for s in ("train", "dev", "test")},
    "snli": {s: f"snli/{s}.jsonl" for s in ("train", "dev", "test")},
    "srl": {s: f"srl/{s}.conll05" for s in ("train", "dev", "test")},
}
DEV_EVERY = 10  # one in so many squad paragraphs is dev


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--raw", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--vectors", type=Path, help="in word2vec's text format; without it, no vectors are written")
    parser.add_argument(
        "--step", type=float, default=0.02, help="the numbers of vectors are rounded to multiples of this"
    )
    options = parser.parse_args()
    for task, files in COPIED.items():
        for split, file in files.items():
            write(options.out / task / f"{split}{Path(file).suffix}.xz", (options.raw / file).read_bytes())
    for split, text in coref_files(options.raw / "coref").items():
        write(options.out / "coref" / f"{split}.conll.xz", text.encode())
    for split, text in squad_files(options.raw / "squad").items():
        write(options.out / "squad" / f"{split}.json.xz", text.encode())
    if options.vectors is not None:
        lines = select_vectors(options.vectors, words_of(options.out), options.step)
        write(options.out / "static.vec.xz", "".join(lines).encode())


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(content, preset=9))
    print(f"{path}: {path.stat().st_size / 1e6:.2f} MB")


def coref_files(folder: Path) -> dict[str, str]:
    """One text in CoNLL columns per split, with a blank line after each sentence."""
    return {split: "\n".join(_coref_documents(folder, split)) for split in ("train", "dev", "test")}


def _coref_documents(folder: Path, split: str) -> Iterator[str]:
    for line in (folder / f"ontogum_{split}.jsonl").read_text(encoding="utf-8").splitlines():
        document = json.loads(line)
        text = (folder / "conll" / f"{document['doc']}.conll").read_text(encoding="utf-8")
        rows = [row.split("\t") for row in text.splitlines() if row.count("\t") == 2]
        words = [word for sentence in document["sentences"] for word in sentence]
        if len(rows) != len(words) or any(row[1] not in ("", word) for row, word in zip(rows, words, strict=True)):
            raise DataError(f"{document['doc']}: the CoNLL file and the JSONL line have different words.")
        ends = set(accumulate(map(len, document["sentences"])))
        lines = [
            f"{row[0]}\t{word}\t{row[2]}" + ("\n" if number in ends else "")
            for number, (row, word) in enumerate(zip(rows, words, strict=True), start=1)
        ]
        yield "\n".join([f"# begin document {document['doc']}", *lines, "# end document", ""])


def squad_files(folder: Path) -> dict[str, str]:
    """Splits the paragraphs of the training file into train and dev; test is the official dev file."""
    values = json.loads((folder / "squad11_train_subset.json").read_text(encoding="utf-8"))
    splits: dict[str, list[dict[str, object]]] = {"train": [], "dev": []}
    for article in values["data"]:
        for split, articles in splits.items():
            paragraphs = [p for p in article["paragraphs"] if is_dev(p["context"]) == (split == "dev")]
            if paragraphs:
                articles.append({**article, "paragraphs": paragraphs})
    texts = {split: json.dumps({**values, "data": articles}) for split, articles in splits.items()}
    return {**texts, "test": (folder / "squad11_dev_full.json").read_text(encoding="utf-8")}


def is_dev(context: str) -> bool:
    """Whether a squad paragraph belongs to dev, by a hash of its text."""
    return int(hashlib.sha256(context.encode()).hexdigest(), 16) % DEV_EVERY == 0


def words_of(data: Path) -> set[str]:
    """All words of all prepared files."""
    words: set[str] = set()
    for file in sorted(data.glob("*/*.xz")):
        for example in load_task(file.parent.name).read(file):
            for sentence in example.sentences:
                words.update(sentence)
    return words


def select_vectors(path: Path, words: set[str], step: float) -> Iterator[str]:
    """The lines of the vectors that lookups of the words use: of each word as written, otherwise in lower case."""
    available = {word for _, word, _ in vector_lines(read_lines(path), path)}
    selected = {form for word in words if (form := word if word in available else word.lower()) in available}
    if not selected:
        raise DataError(f"{path}: the file has no vector of any word of the data.")
    for number, word, numbers in vector_lines(read_lines(path), path):
        if word in selected:
            selected.discard(word)  # if a word occurs twice, its first vector is used
            yield f"{word} {' '.join(rounded(as_vector(numbers, path, number), step))}\n"


def rounded(vector: np.ndarray, step: float) -> Iterable[str]:
    return (f"{value:.4g}" for value in np.round(vector / step) * step)


if __name__ == "__main__":
    main()
