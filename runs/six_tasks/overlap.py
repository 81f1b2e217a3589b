"""Counts the test texts of the six tasks that share a run of words with the training text of the biLM.

    python runs/six_tasks/overlap.py 'text/*.txt.xz' --data scratch/six --out runs/six_tasks/overlap.json

--data is the folder that prepare.py has written; held-out files (*.heldout.*) of the text are skipped. Words are
compared in lower case, without punctuation, and contractions as one word, whether or not a tokenizer has split them
(do n't, don't); of a text with fewer words, nothing is compared. A test text is a context of squad, a document of
coref, and a sentence elsewhere.
"""

from __future__ import annotations

import argparse
import glob
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from jobs import SUFFIX, files_of  # noqa: E402

from elmo.files import atomic_file  # noqa: E402
from elmo.tasks.task import load_task  # noqa: E402
from elmo.text.lines import read_lines  # noqa: E402

WORD = re.compile(r"\w+")
CLITIC = re.compile(r"\s*(n't|'(?:s|m|d|re|ve|ll))\b")  # in lower case, with straight apostrophes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="+", help="files or patterns of the biLM's training text")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--words", type=int, default=11, help="length of a run of words")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    matches = sorted({path for pattern in options.text for path in glob.glob(pattern)})
    files = [path for path in matches if ".heldout." not in path]
    if not files:
        sys.exit(f"no training text: {' '.join(options.text)}")
    test_texts = {task: sorted(texts_of(task, files_of(options.data, task)["test"])) for task in SUFFIX}
    owners: dict[int, set[tuple[str, int]]] = defaultdict(set)  # hash of a run of words -> test texts
    long_enough = dict.fromkeys(test_texts, 0)
    for task, texts in test_texts.items():
        for number, text in enumerate(texts):
            hashes = list(runs_of(text, options.words))
            long_enough[task] += bool(hashes)
            for one in hashes:
                owners[one].add((task, number))
    shared: dict[str, dict[str, set[int]]] = {task: defaultdict(set) for task in test_texts}
    for file in files:
        for line in read_lines(file):
            for one in runs_of(line, options.words):
                for task, number in owners.get(one, ()):
                    shared[task][Path(file).name].add(number)
    result = {
        task: {
            "texts": len(texts),
            "long_enough": long_enough[task],
            "shared": len(set[int]().union(*shared[task].values())),
            "by_file": {name: len(numbers) for name, numbers in shared[task].items()},
        }
        for task, texts in test_texts.items()
    }
    record = {"words_in_a_row": options.words, "files": [Path(file).name for file in files], "test": result}
    with atomic_file(options.out) as partial:
        partial.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


def texts_of(task: str, path: Path) -> set[str]:
    """The distinct texts of a test file, in which tokens are separated by spaces."""
    examples = load_task(task).read(path)
    if task == "squad":
        return {example.context for example in examples}
    if task == "coref":
        return {" ".join(word for sentence in example.sentences for word in sentence) for example in examples}
    return {" ".join(sentence) for example in examples for sentence in example.sentences}


def words_of(text: str) -> list[str]:
    """The words that are compared; apostrophes belong to the word around them."""
    joined = CLITIC.sub(r"\1", text.lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"))
    return WORD.findall(joined.replace("'", ""))


def runs_of(text: str, length: int) -> Iterator[int]:
    """Hashes of all runs of `length` words; equal within a process."""
    words = words_of(text)
    return (hash(tuple(words[start : start + length])) for start in range(len(words) - length + 1))


if __name__ == "__main__":
    main()
