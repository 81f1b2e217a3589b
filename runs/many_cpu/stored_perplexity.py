#!/usr/bin/env python3
"""Measures a stored model of several languages on the held-out sentences that the report of its run has measured.

    python runs/many_cpu/stored_perplexity.py RUN elmo/models/many > records/stored.json

RUN is the folder of the run, with config.toml and report.json; the files are named as in config.toml, from the present
folder on. The report is of the weights before they were rounded, and of a part of the held-out text; this record says
what rounding costs on the same sentences, each from a fresh state.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from elmo.embed.load import model_parts  # noqa: E402
from elmo.files import read_json  # noqa: E402
from elmo.pretrain.config import make_config  # noqa: E402
from elmo.pretrain.data.corpus import Reading, read_sentences  # noqa: E402
from elmo.pretrain.data.languages import heldout_samples  # noqa: E402
from elmo.pretrain.file_perplexity import file_perplexity  # noqa: E402
from elmo.settings import read_toml  # noqa: E402
from elmo.weights.model_parts import build  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("model")
    options = parser.parse_args()
    config, report = make_config(read_toml(options.run / "config.toml")), read_json(options.run / "report.json")
    sentences: dict[str, list[list[str]]] = {}
    sources = []
    for language, files in config.data.heldout_languages.items():
        for file in files:
            sentences[file] = list(read_sentences([file], config.data.reading))
            counts = {"heldout_sentences": len(sentences[file]), "heldout_tokens": sum(map(len, sentences[file]))}
            sources.append({"path": file, "language": language, **counts})
    samples = heldout_samples(sources, report["report_words"])
    parts = model_parts(options.model)
    model, results = build(parts), {}
    with tempfile.TemporaryDirectory() as folder:
        for language, measured in report["perplexity"]["by_language"].items():
            sample = Path(folder) / language
            chosen = [
                " ".join(sentences[source["path"]][number - start])
                for source, start in zip(sources, starts(sources), strict=True)
                if source["language"] == language
                for number in samples.get(source["path"], ())
            ]
            sample.write_text("".join(f"{sentence}\n" for sentence in chosen), encoding="utf-8")
            # a word such as <S> in the text is text, as it was in the run
            reading = Reading(specials=config.data.reading.specials)
            found = file_perplexity(model, list(parts.vocab or ()), [str(sample)], reading, carried=False)["reset"]
            if found["predictions"] != measured["predictions"]:
                sys.exit(f"{language}: {found['predictions']} predictions, the report has {measured['predictions']}")
            results[language] = found
            print(f"{language} {measured['mean']:.2f} -> {found['mean']:.2f}", file=sys.stderr, flush=True)
    print(json.dumps({"stored_perplexity": results, "model": parts.about.get("name")}, indent=1))


def starts(sources: list[dict]) -> list[int]:
    """The number of the first held-out sentence of each source."""
    totals = [0]
    for source in sources:
        totals.append(totals[-1] + source["heldout_sentences"])
    return totals[:-1]


if __name__ == "__main__":
    main()
