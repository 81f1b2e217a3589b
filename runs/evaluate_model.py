#!/usr/bin/env python3
"""Measures a biLM with the commands of this package and writes the records that model card and report are made from.

    python runs/evaluate_model.py MODEL --text TEXT --tasks TASKS --out RECORDS [--only pos ner] [--device cuda]

TEXT has the held-out files NAME.heldout.txt.xz. TASKS has the unpacked sets: lm1b/ (one tokenised text file), pos/
(en_ewt-ud-*.conllu), ner/uner_en_ewt/, wsd/ and wic/wic/. A record that exists is kept, so the command continues where
it was interrupted; --again measures anew.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

# the two uses of a word whose neighbours the report shows
PLAY = (
    "The national team will play the final match in London next week .",
    "He wrote a play in three acts , first performed in London .",
)


def commands(model: str, text: Path, tasks: Path, device: str) -> dict[str, list[str]]:
    """Name of the record -> arguments of `elmo`; each prints one JSON record."""
    heldout = sorted(map(str, text.glob("*.heldout.txt.xz")))
    news = sorted(map(str, (tasks / "lm1b").glob("*.txt")))
    probes = {
        "pos": [str(tasks / "pos" / "en_ewt")],
        "ner": [str(tasks / "ner" / "uner_en_ewt")],
        "wsd": [str(tasks / "wsd")],
        "wic": [str(tasks / "wic" / "wic")],
    }
    on = ["--device", device]
    similar = ["similar", PLAY[0], "play", str(text / "enwiki2015.heldout.txt.xz"), "--beside", PLAY[1], "--paragraphs"]
    return {
        "heldout": ["perplexity", model, *heldout, "--tokenizer", "default", *on],
        "lm1b": ["perplexity", model, *news, "--tokenizer", "none", *on],  # the text is tokenised
        **{name: ["probe", name, *data, "--model", model, *on] for name, data in probes.items()},
        "demo": ["demo", "--model", model],
        "geometry": ["geometry", *news, "--model", model, "--tokenizer", "whitespace", "--min-count", "5"]
        + ["--limit", "4000"],
        "play": [*similar, "--model", model, "--tokenizer", "default", "--layers", "top", "-k", "10"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--tasks", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    chosen = commands(options.model, options.text, options.tasks, options.device)
    if unknown := set(options.only or ()) - set(chosen):
        parser.error(f"unknown records: {', '.join(sorted(unknown))}; expected some of {', '.join(chosen)}")
    options.out.mkdir(parents=True, exist_ok=True)
    failed = []
    for name, arguments in chosen.items():
        path = options.out / f"{name}.json"
        if (options.only and name not in options.only) or (path.exists() and not options.again):
            continue
        began = time.monotonic()
        done = subprocess.run([sys.executable, "-m", "elmo", *arguments, "--json"], stdout=subprocess.PIPE, check=False)
        if done.returncode:
            failed.append(name)
        else:
            partial = path.with_suffix(".partial")
            partial.write_bytes(done.stdout)
            partial.replace(path)
        print(f"{name}: exit code {done.returncode}, {time.monotonic() - began:.0f} s", file=sys.stderr)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
