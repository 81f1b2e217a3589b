#!/usr/bin/env python3
"""Writes the card of a shipped model of several languages from the records of its run; edit the records, not the card.

    python runs/languages_card.py RUN --model elmo/models/many --records records/ --out docs/model_card_many.md

RUN is the folder that `elmo pretrain --language ...` wrote: config.toml, report.json. languages.toml beside this script
describes the text of each language, sources.toml that of English. The records are recognised by their contents:

    elmo probe languages TREEBANKS --model MODEL --vectors 'vectors/{language}.vec' --json   > many.json
    elmo probe languages TREEBANKS --model english --json                                    > english.json
    python runs/many_cpu/alone.py ..., which writes one for each language                    > alone/de/alone.json
    elmo demo --language de --model MODEL --json                                             > demo_de.json
    python benchmarks/head_bits.py RUN/model heldout.txt --tokenizer unicode | tail -1       > head_bits.json
    python runs/many_cpu/stored_perplexity.py RUN MODEL                                      > stored.json

"-" marks what was not measured.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from model_card import HERE, Record, convert_options, escape_html, file_table, read_json, read_lines, stored_as, table

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ENGLISH = "en"
ALONE = "alone"  # folder of a run of many_cpu/alone.py that was trained on one language
MISSING = "-"


class LanguagesCard:
    """The text of a card, from the records of a run with several languages."""

    def __init__(self, run: Path, model: Path, records: Path) -> None:
        self.report = read_json(run / "report.json")
        self.config = tomllib.loads((run / "config.toml").read_text(encoding="utf-8"))
        self.shape = read_json(model / "config.json")
        self.files = read_json(model / "manifest.json")["files"]
        self.languages = tomllib.loads((HERE / "languages.toml").read_text(encoding="utf-8"))
        self.sources = tomllib.loads((HERE / "sources.toml").read_text(encoding="utf-8"))
        self.records = [record for path in sorted(records.glob("*.json")) for record in read_lines(path)]
        self.name: str = self.shape["about"]["name"]

    def text(self) -> str:
        """The whole card in Markdown."""
        sections = (self.head, self.by_language, self.probes, self.senses, self.rounding, self.training)
        sections += (self.limits, self.sources_and_licences, self.reproduction)
        return "\n\n".join(text for section in sections if (text := section())) + "\n"

    def head(self) -> str:
        model, lstm, chars = self.shape["model"], self.shape["model"]["lstm"], self.shape["model"]["chars"]
        filters = sum(count for _, count in chars["filters"])
        return f"""# The model `{self.name}`

<!-- written by runs/languages_card.py from the records of the run; not edited by hand -->

One small biLM (ELMo, Peters et al. 2018) for {len(self.report["languages"])} languages, part of the package:
`elmo.load("{self.name}")` loads it. Texts of different languages may be mixed in one list, and the model
need not be told which language a text is in. It reads words as bytes, so that text in other languages
is read too, but it has not learned them.

- {lstm["num_layers"]} layers per direction, {lstm["cell_dim"]:,} cells, projection {lstm["proj_dim"]};
  {filters:,} character filters, highways: {chars["num_highways"]};
  {lstm["num_layers"] + 1} layers of vectors, each {2 * lstm["proj_dim"]} wide.
- Softmax: {model["head"]["vocab_size"]:,} words, chosen by counts that are weighted in the same way as the
  languages are sampled.
- Tokenizer `unicode`, which the model records: raw text of all these languages is split by its rules.
- {stored_as(self.shape, self.files)}.
- Licence of the weights: CC BY-SA 4.0, because some of the text is under CC BY-SA. It is unsettled whether such a
  licence applies to weights; we follow the stricter reading. The code is Apache-2.0.

{file_table(self.files)}"""

    def by_language(self) -> str:
        measured = self.report["perplexity"]["by_language"]
        stored = next((r["stored_perplexity"] for r in self.records if "stored_perplexity" in r), {})
        head = ["code", "language", "tokens (M)", "share of training", "times read", "unknown", "perplexity", "stored"]
        rows = [head]
        tokens = self.report["step"] * self.config["train"]["rows"] * self.config["train"]["steps"]
        for code, one in self.report["languages"].items():
            perplexity = f"{measured[code]['mean']:.1f}" if code in measured else MISSING
            words, repetitions = f"{one['words'] / 1e6:.2f}", f"{tokens * one['share'] / one['positions']:.1f}"
            unknown = MISSING if one["unknown_share"] is None else f"{one['unknown_share']:.0%}"
            shares = f"{one['share']:.1%}", repetitions, unknown
            after = f"{stored[code]['mean']:.1f}" if code in stored else MISSING
            rows.append([code, self.title(code), words, *shares, perplexity, after])
        return f"""## Languages

For each language: tokens of its training text, its share of what was read, how often its text was read in the whole
run, the share of held-out words that the softmax does not have, and the held-out perplexity (each sentence from a fresh
state, mean of both directions) before the weights were rounded and, on the same sentences, of the stored model.
Perplexities of different languages are not comparable: they depend on the text and on the share of unknown words.

{table(rows, "llrrrrrr")}

{escape_html(self.report["definition"])}."""

    def probes(self) -> str:
        found = [record for record in self.records if record.get("probe") == "languages"]
        named = {record["vectors"]["name"]: record["scores"]["languages"] for record in found}
        if self.name not in named:
            return ""
        own, english = named[self.name], named.get("english", {})
        single = {}
        for name, scores in named.items():
            if Path(name).parent.name == ALONE:
                (code,) = scores
                assert code not in single, f"two records of models of {code} alone"
                single |= scores
        head = ["code", "best layer", "layers concatenated", "alone: best layer", "alone: concatenated"]
        head += ["`english`: best layer", "`english`: concatenated", "static vectors", "most frequent tag"]
        rows, numbers = [head], []
        for code, scores in own.items():
            cells = [*two_views(scores), *two_views(single.get(code)), *two_views(english.get(code))]
            cells += [test_of(scores, "static"), test_of(scores, "most_frequent_tag")]
            is_learned = code in self.report["languages"]
            numbers += [cells] if is_learned else []
            rows.append([code if is_learned else f"{code} (not learned)", *map(shown, cells)])
        rows.append(["mean", *mean_row(numbers)])
        both = [row for row in numbers if row[2] is not None]
        if 0 < len(both) < len(numbers):
            rows.append(["mean of those with a model alone", *mean_row(both)])
        return f"""## Parts of speech

Test accuracy of a linear classifier of universal tags on frozen vectors (`elmo probe languages`), trained on at most
1,200 sentences of a Universal Dependencies treebank. The best layer is chosen on the development part. The splits are
not the published ones, so that the numbers cannot be compared with the literature. "Alone" is a model of the same size
that was trained on this language only. The means are over the languages that the model has learned; in brackets is the
number of languages that have a value in the column.

{table(rows, "lrrrrrrrr")}"""

    def senses(self) -> str:
        num_layers = self.shape["model"]["lstm"]["num_layers"] + 1
        rows = [["language", "model", "words", *(f"layer {n}" for n in range(num_layers))]]
        found = [record for record in self.records if "senses" in record]
        for record in sorted(found, key=lambda r: (r["language"], r["model"] != self.name, r["model"])):
            senses = list(record["senses"].values())
            shares = [sum(word[n]["nearest"] for word in senses) / len(senses) for n in range(len(senses[0]))]
            cells = [self.title(record["language"]), f"`{record['model']}`", str(len(senses))]
            rows.append([*cells, *(f"{share:.0%}" for share in shares)])
        if len(rows) == 1:
            return ""
        return f"""## Word senses

How often the nearest other use of an ambiguous word has the same sense, in the sentences of
`elmo demo --language CODE --model {self.name}` (eight per word; layer 0 has no context, so its share is chance). The
other models have not learned the language:

{table(rows, "llr" + "r" * num_layers)}"""

    def rounding(self) -> str:
        matches = [record for record in self.records if "results" in record and "every" in record]
        if not matches:
            return ""
        rows = [["softmax", "text", "words", "perplexity", "megabytes"]]
        for one in matches[0]["results"]:
            perplexity, megabytes = f"{one['perplexity']:.2f}", f"{one['head'] / 1e6:.1f}"
            rows.append([one["softmax"], one["file"], f"{one['words']:,}", perplexity, megabytes])
        return f"## What the stored softmax costs\n\n{table(rows, 'llrrr')}"

    def training(self) -> str:
        train, optim, objective = (self.config[name] for name in ("train", "optim", "objective"))
        tokens = self.report["step"] * train["rows"] * train["steps"]
        return f"""## Training

{self.report["step"]:,} steps of {train["rows"]} rows of {train["steps"]} tokens,
{tokens / 1e6:.0f} million tokens in all: {optim["name"]}, learning rate {optim["lr"]:g}, {optim["decay"]} decay,
{objective["softmax"]} softmax with {objective["num_samples"]:,} words, dropout {objective["dropout"]:g},
{train["precision"]}, seed {train["seed"]}. A language is read in proportion to the number of its
tokens to the power of 1 / {self.config["data"]["temperature"]:g}."""

    def limits(self) -> str:
        return """## Biases and limits

- Each language but English has 0.2 to 1 million words. The mixture of novels of 1840 to 1920, speeches, single
  sentences written for recordings, documentation and other text differs by language, and some have almost one kind
  only: see the table below. News (except in English), social media and conversation are missing, and the vectors
  reflect the views of these texts and times on people. Do not rank or judge people with them.
- Serbian is in Cyrillic script, except for a fifth in Latin script.
- The vectors know forms better than meanings: a million words say little about rare senses. For English, `english`
  is far better.
- Words of up to 48 bytes are read whole: 48 Latin letters, 24 Cyrillic or Arabic ones, 16 of Devanagari. The rest of
  a longer word is cut.
- If you can afford a current multilingual transformer, compare with one first. This model is for small machines,
  offline use, study, and as a starting point for `elmo finetune`."""

    def sources_and_licences(self) -> str:
        rows = [["code", "words (M)", "kinds of text (thousand words)", "licences", "from"]]
        for code in self.report["languages"]:
            if code != ENGLISH:
                one = self.languages[code]
                rows.append([code, f"{one['words']:.2f}", one["kinds"], one["licence"], ", ".join(one["from"])])
        names = [Path(file).name.split(".")[0] for file in self.config["data"]["languages"].get(ENGLISH, ())]
        english = [["source", "what", "words (M)", "licence", "from"]]
        for name in names:
            s = self.sources[name]
            english.append([f"`{name}`", s["what"], f"{s['words']:.1f}", s["licence"], s["from"]])
        note = f"\n\nEnglish:\n\n{table(english, 'llrll')}" if names else ""
        return f"""## Text and licences

Words are counted before tokenisation, without held-out text. Speeches are of the European Parliament
(© European Union, reuse authorised with acknowledgement).

{table(rows, "lrlll")}{note}"""

    def reproduction(self) -> str:
        convert = convert_options(self.shape)
        card, folder = "docs/model_card_many.md", f"elmo/models/{self.name}"
        return f"""## Train it again

    elmo pretrain --config runs/many_cpu/recipe.toml --out run       # needs the text above
    elmo convert run/model {folder} {convert} --name {self.name} --overwrite
    python runs/languages_card.py run --model {folder} --records records/ --out {card}
    elmo convert run/model {folder} {convert} --name {self.name} --card {card} --overwrite"""

    def title(self, code: str) -> str:
        return "English" if code == ENGLISH else str(self.languages.get(code, {}).get("name", code))


def mean_row(numbers: list[list[float | None]]) -> list[str]:
    """The mean of each column over the rows that have a value, and their number."""
    columns = [[cell for cell in column if cell is not None] for column in zip(*numbers, strict=True)]
    return [f"{sum(c) / len(c):.1f} ({len(c)})" if c else MISSING for c in columns]


def two_views(scores: Record | None) -> list[float | None]:
    """Test accuracy of the layer that is best on the development part, and of all layers concatenated."""
    if scores is None:
        return [None, None]
    layers = {name: view for name, view in scores["views"].items() if name.isdigit()}
    best = max(layers.values(), key=lambda view: float(view["dev"]))
    return [best["test"], scores["views"]["concat"]["test"]]


def test_of(scores: Record, name: str) -> float | None:
    return scores[name]["test"] if name in scores else None


def shown(value: float | None) -> str:
    return MISSING if value is None else f"{value:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of the pretraining run")
    parser.add_argument("--model", type=Path, required=True, help="folder of the shipped model")
    parser.add_argument("--records", type=Path, required=True, help="folder of JSON records")
    parser.add_argument("--out", type=Path, required=True, help="the Markdown file to write")
    options = parser.parse_args()
    card = LanguagesCard(options.run, options.model, options.records)
    options.out.write_text(card.text(), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
