"""Makes what run_all.py reads from the open data sets: OUT/TASK/{train,dev,test}.*.xz and OUT/static.vec.xz.

    python runs/six_tasks/prepare.py --raw RAW --vectors static256.vec --out scratch/six

RAW holds ner/uner_en_ewt, sst, snli, squad, srl and coref as they are published. Three things are changed on the way:

coref   one CoNLL file a split: mentions from OntoGUM's CoNLL files, which have no sentence boundaries (the JSONL beside
        them has those, but loses mentions inside others); documents whose words are masked are left out
squad   the official dev file becomes test, scored once; about a tenth of the training paragraphs, chosen by a hash of
        their text, becomes dev
vectors only words that occur in the data are kept (as written, else in lower case), rounded to --step: the file is a
        tenth of the whole, and the same for runs with and without ELMo
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path

import numpy as np

from elmo.errors import DataError
from elmo.tasks.task import load_task
from elmo.text.lines import read_lines
from elmo.text.word2vec_format import as_vector, vector_lines

PLAIN = {  # task: its files, copied as they are
    "ner": {s: f"ner/uner_en_ewt/{s}.iob2" for s in ("train", "dev", "test")},
    "sst": {s: f"sst/{s}.txt" for s in ("train", "dev", "test")},
    "snli": {s: f"snli/{s}.jsonl" for s in ("train", "dev", "test")},
    "srl": {s: f"srl/{s}.conll05" for s in ("train", "dev", "test")},
}
DEV_SHARE = 10  # one squad paragraph in so many is dev


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--raw", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--vectors", type=Path, help="word2vec text format; without, the vectors are left as they are")
    parser.add_argument("--step", type=float, default=0.02, help="vectors are rounded to multiples of this")
    asked = parser.parse_args()
    for task, files in PLAIN.items():
        for split, file in files.items():
            write(asked.out / task / f"{split}{Path(file).suffix}.xz", (asked.raw / file).read_bytes())
    for split, text in coref_files(asked.raw / "coref").items():
        write(asked.out / "coref" / f"{split}.conll.xz", text.encode())
    for split, text in squad_files(asked.raw / "squad").items():
        write(asked.out / "squad" / f"{split}.json.xz", text.encode())
    if asked.vectors is not None:
        lines = kept_vectors(asked.vectors, words_of(asked.out), asked.step)
        write(asked.out / "static.vec.xz", "".join(lines).encode())


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(content, preset=9))
    print(f"{path}: {path.stat().st_size / 1e6:.2f} MB")


def coref_files(folder: Path) -> dict[str, str]:
    """One text in CoNLL columns a split, a blank line after each sentence."""
    return {split: "\n".join(_coref_documents(folder, split)) for split in ("train", "dev", "test")}


def _coref_documents(folder: Path, split: str) -> Iterator[str]:
    for line in (folder / f"ontogum_{split}.jsonl").read_text(encoding="utf-8").splitlines():
        document = json.loads(line)
        text = (folder / "conll" / f"{document['doc']}.conll").read_text(encoding="utf-8")
        rows = [row.split("\t") for row in text.splitlines() if row.count("\t") == 2]
        words = [word for sentence in document["sentences"] for word in sentence]
        if len(rows) != len(words) or any(row[1] not in ("", word) for row, word in zip(rows, words, strict=True)):
            raise DataError(f"{document['doc']}: its CoNLL file and its JSONL line have different words.")
        ends = set(accumulate(map(len, document["sentences"])))
        lines = [
            f"{row[0]}\t{word}\t{row[2]}" + ("\n" if number in ends else "")
            for number, (row, word) in enumerate(zip(rows, words, strict=True), start=1)
        ]
        yield "\n".join([f"# begin document {document['doc']}", *lines, "# end document", ""])


def squad_files(folder: Path) -> dict[str, str]:
    """Train and dev from the training file, paragraph by paragraph; test is the official dev file."""
    whole = json.loads((folder / "squad11_train_subset.json").read_text(encoding="utf-8"))
    sides: dict[str, list[dict[str, object]]] = {"train": [], "dev": []}
    for article in whole["data"]:
        for side, articles in sides.items():
            paragraphs = [p for p in article["paragraphs"] if is_dev(p["context"]) == (side == "dev")]
            if paragraphs:
                articles.append({**article, "paragraphs": paragraphs})
    texts = {side: json.dumps({**whole, "data": articles}) for side, articles in sides.items()}
    return {**texts, "test": (folder / "squad11_dev_full.json").read_text(encoding="utf-8")}


def is_dev(context: str) -> bool:
    return int(hashlib.sha256(context.encode()).hexdigest(), 16) % DEV_SHARE == 0


def words_of(data: Path) -> set[str]:
    """Every word of every prepared file."""
    found: set[str] = set()
    for file in sorted(data.glob("*/*.xz")):
        for example in load_task(file.parent.name).read(file):
            for sentence in example.sentences:
                found.update(sentence)
    return found


def kept_vectors(path: Path, words: set[str], step: float) -> Iterator[str]:
    """Lines of the vectors that a look-up of the words can meet: a word's own, else that of its lower case."""
    own = {word for _, word, _ in vector_lines(read_lines(path), path)}
    wanted = {form for word in words if (form := word if word in own else word.lower()) in own}
    if not wanted:
        raise DataError(f"{path}: no vector of any word of the data.")
    for number, word, numbers in vector_lines(read_lines(path), path):
        if word in wanted:
            wanted.discard(word)
            yield f"{word} {' '.join(rounded(as_vector(numbers, path, number), step))}\n"


def rounded(vector: np.ndarray, step: float) -> Iterable[str]:
    return (f"{value:.4g}" for value in np.round(vector / step) * step)


if __name__ == "__main__":
    main()
