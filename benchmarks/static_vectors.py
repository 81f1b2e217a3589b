"""Trains static word vectors on the text of a biLM: skip-gram with negative sampling, a baseline for the probes.

    pip install gensim
    python benchmarks/static_vectors.py 'text/*.txt.xz' --out static.vec --dim 256 --epochs 2

The package's own sentence splitter and tokenizer write the text to a temporary file with one sentence per line, as in
`elmo pretrain --tokenizer NAME`; held-out files (*.heldout.*) are skipped. The result has word2vec's text format (a
line of counts, then one word and its vector per line), which `elmo probe --vectors` reads. With one worker and a fixed
seed the vectors are reproducible. Prints the settings and times as one JSON line and writes the same to FILE.json next
to the vectors.
"""

from __future__ import annotations

import argparse
import glob
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from elmo.files import atomic_file, require_extra
from elmo.pretrain.data.corpus import Reading, read_sentences


def main() -> None:
    options = read_options()
    matches = sorted({path for pattern in options.text for path in glob.glob(pattern)})
    files = [path for path in matches if ".heldout." not in path]
    word2vec = require_extra("gensim.models.word2vec", "gensim", "gensim")
    record = {"files": [Path(path).name for path in files], "tokenizer": options.tokenizer, **settings(options)}
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        text = options.tokens or Path(folder) / "tokens.txt"
        start = time.monotonic()
        if not Path(text).exists():
            record["sentences"], record["tokens"] = write_tokens(files, Path(text), options.tokenizer)
        record["tokenise_s"] = round(time.monotonic() - start)
        print(json.dumps(record), file=sys.stderr, flush=True)
        start = time.monotonic()
        model = word2vec.Word2Vec(corpus_file=str(text), **settings(options))
        record["train_s"] = round(time.monotonic() - start)
    record["words"] = len(model.wv)
    with atomic_file(options.out) as partial:
        model.wv.save_word2vec_format(str(partial), binary=False)
    Path(f"{options.out}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(record))


def write_tokens(files: list[str], path: Path, tokenizer: str) -> tuple[int, int]:
    """Writes one sentence per line; returns the numbers of sentences and tokens."""
    sentences = tokens = 0
    last_report = time.monotonic()
    with open(path, "w", encoding="utf-8", newline="\n") as out:
        for name in files:
            tokenised = "tokenised" in Path(name).name  # already one sentence per line
            reading = Reading(tokenize="whitespace" if tokenised else tokenizer, specials="escape", errors="replace")
            for sentence in read_sentences([name], reading):
                out.write(" ".join(sentence) + "\n")
                sentences += 1
                tokens += len(sentence)
                if time.monotonic() - last_report > 30:
                    last_report = time.monotonic()
                    print(f"{name}: {tokens:,} tokens so far", file=sys.stderr, flush=True)
    return sentences, tokens


def settings(options: argparse.Namespace) -> dict[str, object]:
    """The arguments of gensim's Word2Vec, which are also stored in the record."""
    return {
        "vector_size": options.dim,
        "sg": int(not options.cbow),
        "negative": 5,
        "window": 5,
        "min_count": 5,
        "max_final_vocab": options.max_words,
        "sample": 1e-4,
        "epochs": options.epochs,
        "workers": options.workers,
        "seed": options.seed,
    }


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="+", help="text files or globs; compressed by suffix")
    parser.add_argument("--out", type=Path, required=True, help="the .vec file to write")
    parser.add_argument("--tokenizer", default="default", help="as in `elmo pretrain`: default, unicode, moses:de ...")
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--cbow", action="store_true", help="use CBOW: several times faster, worse on rare words")
    parser.add_argument("--max-words", type=int, default=200_000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tokens", type=Path, help="file of the tokenised text: read if it exists, else written")
    parser.add_argument("--scratch", type=Path, help="folder for the temporary tokenised text, without --tokens")
    return parser.parse_args()


if __name__ == "__main__":
    main()
