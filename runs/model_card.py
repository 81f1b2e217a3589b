#!/usr/bin/env python3
"""The shipped model's card, written from the records of its run; edit this script or the records, never the card.

    python runs/model_card.py RUN --model elmo/models/english --records records/ --minutes 60 --out docs/model_card.md

RUN is the folder `elmo pretrain` left: config.toml, report.json, metrics.jsonl. The model's folder has the sha256.
The records folder holds JSON (or JSON lines) as our commands print them, found by what is in them, named as you like:

    elmo perplexity MODEL heldout/*.xz --tokenize default --json > heldout.json    the shipped numbers by source
    elmo perplexity MODEL lm1b.txt --json                        > lm1b.json       named lm1b: another domain
    elmo probe ... --json                                        > pos.json        also of other vectors, to compare
    elmo demo --model MODEL --json                               > demo.json       similarity of words in context
    {"text": ..., "exact": {name: {"mean": ...}}, "rounded": ...}  rounding.json   perplexity before and after rounding
    RUN/report.json of `elmo finetune`                           > biomedical.json a domain variant, before and after

What is missing stands in the card as "not measured" and is listed on standard error; --strict makes it a failure.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
MISSING = "not measured"
LAYERS = ("0", "1", "2")


class Card:
    """The records of a run, and what was found wanting while the card was written."""

    def __init__(self, run: Path, model: Path, records: Path | None, minutes: float | None, recipe: str) -> None:
        self.report = read_json(run / "report.json")
        self.config = tomllib.loads((run / "config.toml").read_text(encoding="utf-8"))
        self.steps = read_lines(run / "metrics.jsonl")
        self.shape = read_json(model / "config.json")
        self.files = read_json(model / "manifest.json")["files"]
        self.sources = tomllib.loads((HERE / "sources.toml").read_text(encoding="utf-8"))
        self.minutes, self.recipe = minutes, recipe
        self.records: list[tuple[str, dict[str, Any]]] = []
        for path in sorted(records.glob("*.json*")) if records else ():
            self.records += [(path.stem, record) for record in read_lines(path)]
        self.missing: list[str] = []

    def lack(self, what: str) -> str:
        self.missing.append(what)
        return MISSING

    def text(self) -> str:
        parts = (
            *(self.head, self.data, self.filtering, self.training, self.perplexity, self.news),
            *(self.probes, self.similarity, self.variant, self.limits, self.again),
        )
        return "\n\n".join(part() for part in parts) + "\n"

    def head(self) -> str:
        model, lstm, chars = self.shape["model"], self.shape["model"]["lstm"], self.shape["model"]["chars"]
        name = self.shape.get("about", {}).get("name") or "english"
        megabytes = sum(file["bytes"] for file in self.files.values()) / 1e6
        filters = sum(count for _, count in chars["filters"])
        words = f"{model['head']['vocab_size']:,} words" if model.get("head") else "none"
        rows = [["file", "bytes", "sha256"]]
        rows += [[n, f"{f['bytes']:,}", f"`{f['sha256']}`"] for n, f in self.files.items() if n != "README.md"]
        return f"""# The model `{name}`

<!-- written by runs/model_card.py from the records of the run; not edited by hand -->

An English biLM (ELMo, Peters et al. 2018) that comes with the package: `elmo.load()` gives it, `elmo score`,
`perplexity` and `finetune` use its softmax.

- {lstm["num_layers"]} layers a direction, {lstm["cell_dim"]:,} cells, projection {lstm["proj_dim"]};
  {filters:,} character filters, highways: {chars["num_highways"]};
  vectors of {2 * lstm["proj_dim"]}, {lstm["num_layers"] + 1} layers of them.
- Softmax: {words}. Reads any word, by its bytes.
- Stored as {self.shape.get("storage", "float32")}, {megabytes:.1f} MB; the numbers below are of the
  stored model unless said otherwise. It exports to options.json + weights.hdf5 (`elmo convert default out --to hdf5`).
- Licence of the weights: CC BY-SA 4.0, because most of the text is under CC BY-SA; whether such a licence reaches
  weights is unsettled, so the stricter reading was taken. The code is Apache-2.0.

{table(rows, "lrl")}"""

    def used(self) -> dict[str, dict[str, Any]]:
        """The sources of the run, by name."""
        files = [Path(file).name for file in self.config["data"]["files"]]
        return {name: s for name, s in self.sources.items() if any(file.startswith(name) for file in files)}

    def data(self) -> str:
        used = self.used()
        strays = [Path(file).name for file in self.config["data"]["files"]]
        strays = [file for file in strays if not file.startswith(tuple(used) or ("\0",))]
        rows = [["source", "what", "words (M)", "licence", "from"]]
        rows += [[f"`{n}`", s["what"], f"{s['words']:.1f}", s["licence"], s["from"]] for n, s in used.items()]
        rows += [[f"`{file}`", self.lack(f"runs/sources.toml: {file}"), "", "", ""] for file in strays]
        rows.append(["all", "", f"{sum(s['words'] for s in used.values()):.1f}", "", ""])
        left = [name for name in self.sources if name not in used]
        note = f"\n\nAt hand and not used: {', '.join(left)}." if left else ""
        counted = "Words are counted before tokenisation; about one in a hundred of each source is held out."
        return f"## Text\n\n{table(rows, 'llrll')}\n\n{counted}{note}"

    def filtering(self) -> str:
        data = self.config["data"]
        how = data["reading"].get("tokenize") or "as it came, tokenised already"
        most = f"{data['max_vocab']:,} most frequent words" if data.get("max_vocab") else "words"
        return f"""## What was filtered

Paragraphs that occur twice were dropped, and held-out paragraphs never occur in the training part. Text was split into
sentences and tokenised by this package (tokenizer: {how}); nothing was lower-cased, no words were removed, no names,
addresses or opinions were masked. The softmax has the {most} that occur at least {data["min_count"]} times;
all others count as `<UNK>` when they are predicted, and are read like any other word."""

    def training(self) -> str:
        train, optim, objective = (self.config[name] for name in ("train", "optim", "objective"))
        tokens = train["rows"] * train["steps"]
        marks = [r for r in self.steps if "validation" in r]
        last = max((r["step"] for r in self.steps), default=0)
        if not marks:
            self.lack("metrics.jsonl: validation records")
        rows = [["step", "tokens (M)", "minutes (about)", "held out, reset", "held out, carried"]]
        for record in thinned(marks, 12):
            step, held = record["step"], record["validation"]
            minutes = f"{self.minutes * step / last:.1f}" if self.minutes else self.lack("--minutes")
            carried = f"{held['carried']['mean']:.1f}" if "carried" in held else ""
            rows.append([f"{step:,}", f"{step * tokens / 1e6:.1f}", minutes, f"{held['reset']['mean']:.1f}", carried])
        return f"""## Training

Recipe `{self.config["recipe"]}`, seed {train["seed"]}: {optim["name"]}, learning rate {optim["lr"]:g},
{optim["decay"]} decay, warm-up {optim["warmup"]:g}, gradients clipped at {optim["clip_norm"]:g};
{train["rows"]:,} rows of {train["steps"]} tokens a step, {objective["softmax"]} softmax, dropout
{objective["dropout"]:g}, {train["precision"]}; {last:,} steps. A sentence starts from a fresh
state with probability {train["reset"]:g}.

{table(rows, "rrrrr")}

Perplexity on the run's validation sample while it trained, weights not yet rounded."""

    def perplexity(self) -> str:
        found = self.by_content(lambda name, r: "reset" in r and "by_source" in r and "lm1b" not in name)
        of = "the stored model"
        if not found and "perplexity" in self.report:
            self.lack("records: perplexity of the stored model by source")
            found = [("", self.report["perplexity"] | {"definition": self.report["definition"]})]
            of = "the run's weights before rounding"
        rows = [["domain", "source", "words", "unknown", "forward", "backward", "mean", "mean, carried"]]
        for _, record in found[:1]:
            for source, one in {**record["by_source"], "all": record}.items():
                name = next((n for n in self.sources if Path(source).name.startswith(n)), source)
                rows.append([self.sources.get(name, {}).get("domain", ""), name, *figures(one)])
        definition = found[0][1]["definition"] if found else self.lack("perplexity by source")
        parts = ["## Held-out perplexity by domain", f"Of {of}.", table(rows, "llrrrrrr"), f"{escaped(definition)}."]
        return "\n\n".join([*parts, *self.rounding()])

    def rounding(self) -> list[str]:
        """What storing the model in 8 bits costs, where it was measured."""
        found = self.by_content(lambda _, r: "rounded" in r and "exact" in r)
        rows = [["text", "words", "before rounding", "stored"]]
        for _, record in found[:1]:
            for name, one in record["rounded"].items():
                rows.append([name, f"{one['words']:,}", f"{record['exact'][name]['mean']:.2f}", f"{one['mean']:.2f}"])
        return [f"What rounding to 8 bits costs ({found[0][1]['text']}):", table(rows, "lrrr")] if found else []

    def news(self) -> str:
        found = self.by_content(lambda name, r: "reset" in r and "lm1b" in name)
        rows = [["text", "words", "unknown", "forward", "backward", "mean", "mean, carried"]]
        rows += [["1B Word, held-out shards 10 and 11", *figures(record)] for _, record in found[:1]]
        if not found:
            rows.append(["1B Word, held-out shards 10 and 11", self.lack("records: lm1b"), "", "", "", "", ""])
        return f"""## News, another domain

The 1 Billion Word Benchmark's held-out sample is news of 2011 in a tokenisation of its own; no such text was trained
on. The paper's 39.7 is for a larger model, trained on 768 million words of exactly this text with a vocabulary of its
own, so the two numbers do not compare models.

{table(rows, "lrrrrrr")}"""

    def probes(self) -> str:
        blocks = ["## Probes\n\nA small reader on frozen vectors; higher is better. `elmo probe` repeats them."]
        for kind, title in PROBE_TITLES.items():
            records = [record for _, record in self.records if record.get("probe") == kind]
            rows = [row for record in records for row in PROBE_ROWS[kind](record)]
            head = ["vectors", *(f"layer {n}" for n in LAYERS), "best view"]
            unique = [row for n, row in enumerate(rows) if row not in rows[:n]]  # baselines come with every record
            body = table([head, *unique], "lrrrr") if rows else self.lack(f"records: probe {kind}")
            blocks.append(f"**{title}**\n\n{body}")
        return "\n\n".join(blocks)

    def similarity(self) -> str:
        found = self.by_content(lambda _, r: "senses" in r and "neighbours" in r)
        if not found:
            return f"## Words in context\n\n{self.lack('records: elmo demo --json')}"
        senses = found[0][1]["senses"]
        num_layers = len(next(iter(senses.values())))
        rows = [["word", *(f"layer {n}" for n in range(num_layers))]]
        rows += [[w, *(f"{v['within']:.2f} / {v['between']:.2f}" for v in layers)] for w, layers in senses.items()]
        nearest = [sum(layers[n]["nearest"] for layers in senses.values()) / len(senses) for n in range(num_layers)]
        rows.append(["nearest use has the same sense", *(f"{share:.0%}" for share in nearest)])
        return f"""## Words in context

Mean cosine of two uses of a word in the same sense / in different senses, in the sentences of `elmo demo` (six words
of two senses, four sentences a sense; layer 0 has no context, its share is chance):

{table(rows, "lrrr")}"""

    def variant(self) -> str:
        title = "## A domain variant"
        found = self.by_content(lambda _, r: "before" in r and "after" in r)
        if not found:
            return f"{title}\n\n{self.lack('records: report.json of elmo finetune')}"
        rows = [["variant", "text", "before", "after"]]
        for name, record in found:
            for source, after in (record["after"].get("by_source") or {"all": record["after"]}).items():
                before = ((record["before"] or {}).get("by_source") or {"all": record["before"] or {}}).get(source, {})
                old = f"{before['reset']['mean']:.1f}" if "reset" in before else "no softmax"
                rows.append([record.get("note", name), Path(source).name, old, f"{after['reset']['mean']:.1f}"])
        return f"{title}\n\nMade with `elmo finetune`; perplexity, state reset.\n\n{table(rows, 'llrr')}"

    def limits(self) -> str:
        words = sum(source["words"] for source in self.used().values())
        hours = f"{self.minutes:.0f} minutes of one GPU" if self.minutes else "little time"
        return f"""## Biases and limits

- The text is what was openly to be had (see above): formal, edited writing, much of it British or American, much of it
  by and about men; novels and speeches carry their time's views of women, races, classes and religions. The vectors and
  the words it predicts reflect all of that. Do not rank or judge people with them.
- English only. Tweets, chats, speech, code and other languages are far from the text; words are read by their bytes, so
  nothing fails, but the vectors mean less.
- Small: {words:.0f} million words and {hours}, where the published English models had 800 million words or more.
  Where a current transformer can be afforded, compare with one first; this model is for small machines, offline use,
  study, and as a start for `elmo finetune`.
- It knows no facts to rely on; its substitutes are guesses at form and fit.
- Stored numbers are rounded; `elmo info default` says how. They are loaded exactly as they were measured."""

    def again(self) -> str:
        return f"""## Train it again

    elmo pretrain --config {self.recipe} --out run       # needs the text above and a GPU
    elmo convert run/model elmo/models/english --storage int8 --name english --overwrite
    python runs/model_card.py run --model elmo/models/english --records records/ --out docs/model_card.md
    elmo convert run/model elmo/models/english --storage int8 --name english --card docs/model_card.md --overwrite

A killed run goes on where it was when started again. The same text, seed and settings give the same model within the
noise of a GPU's sums."""

    def by_content(self, fits: Any) -> list[tuple[str, dict[str, Any]]]:
        return [(name, record) for name, record in self.records if fits(name, record)]


PROBE_TITLES = {
    "pos": "Part of speech, XPOS, UD English EWT, test accuracy",
    "ner": "Named entities, UNER English EWT, test F1",
    "wsd": "Word senses, SemCor to Raganato's ALL, F1 with first-sense back-off (without)",
    "wic": "Word in Context, dev accuracy",
}


def tag_rows(record: dict[str, Any]) -> Iterable[list[str]]:
    """The linear probes: the layers, and the best of the other views by dev."""
    views = record["scores"]["views"]
    yield [vectors_of(record), *layer_cells(views, lambda v: f"{v['test']:.1f}"), best_cell(views, "dev", "test")]
    if "usual_tag" in record["scores"]:
        yield ["usual tag of the word", "", "", "", f"{record['scores']['usual_tag']['test']:.1f}"]


def wsd_rows(record: dict[str, Any]) -> Iterable[list[str]]:
    """Word senses: each layer, the best of all, and the baselines."""
    scores = record["scores"]
    total = next(name for name in scores["wordnet_first_sense"] if name.lower() == "all")
    plain = {name: forms["plain"] for name, forms in scores["views"].items()}
    cells = layer_cells(plain, lambda v: f"{v[total]:.1f} ({v['no_back_off']:.1f})")
    yield [vectors_of(record), *cells, best_cell(plain, total, total)]
    yield ["WordNet's first sense", "", "", "", f"{scores['wordnet_first_sense'][total]:.1f}"]


def wic_rows(record: dict[str, Any]) -> Iterable[list[str]]:
    """Word in Context: the threshold's accuracy on dev."""
    plain = {name: forms["plain"] for name, forms in record["scores"]["views"].items()}
    yield [vectors_of(record), *layer_cells(plain, lambda v: f"{v['dev']:.1f}"), best_cell(plain, "dev", "dev")]


PROBE_ROWS: dict[str, Any] = {"pos": tag_rows, "ner": tag_rows, "wsd": wsd_rows, "wic": wic_rows}


def vectors_of(record: dict[str, Any]) -> str:
    return str(record["vectors"].get("name", "?"))


def layer_cells(views: dict[str, Any], show: Any) -> list[str]:
    found = {name.removeprefix("layer").strip(" _-"): view for name, view in views.items()}
    return [show(found[n]) if n in found else "" for n in LAYERS]


def best_cell(views: dict[str, Any], by: str, shown: str) -> str:
    name, view = max(views.items(), key=lambda item: item[1][by])
    return f"{view[shown]:.1f} ({f'layer {name}' if name.isdigit() else name})"


def figures(record: dict[str, Any]) -> list[str]:
    """words, unknown, forward, backward, mean, carried mean: of `elmo perplexity` or of a run's report."""
    reset = record.get("reset", record)
    words = f"{record['words']:,}" if "words" in record else ""
    unknown = f"{record['unknown']:.1%}" if "unknown" in record else ""
    carried = f"{record['carried']['mean']:.1f}" if "carried" in record else ""
    return [words, unknown, *(f"{reset[k]:.1f}" for k in ("forward", "backward", "mean")), carried]


def escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace(">", "&gt;")  # <S> is no tag


def table(rows: Sequence[Sequence[str]], align: str) -> str:
    """A Markdown table; align has l or r a column."""
    rule = ["--:" if side == "r" else "---" for side in align]
    return "\n".join(f"| {' | '.join(row)} |" for row in (rows[0], rule, *rows[1:]))


def thinned(records: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """At most so many, evenly, the last among them."""
    if len(records) <= most:
        return records
    return [records[round((n + 1) * len(records) / most) - 1] for n in range(most)]


def read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def read_lines(path: Path) -> list[dict[str, Any]]:
    """One JSON object, or one a line; those that are no objects are left out."""
    text = path.read_text(encoding="utf-8")
    try:
        found = [json.loads(text)]
    except json.JSONDecodeError:
        found = [json.loads(line) for line in text.splitlines() if line.strip()]
    return [record for record in found if isinstance(record, dict)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of the pretraining run")
    parser.add_argument("--model", type=Path, required=True, help="folder of the shipped model")
    parser.add_argument("--records", type=Path, help="folder of JSON records")
    parser.add_argument("--minutes", type=float, help="how long the training took in all")
    parser.add_argument("--recipe", default="runs/english/config.toml", help="the committed settings to train it again")
    parser.add_argument("--out", type=Path, required=True, help="the Markdown file to write")
    parser.add_argument("--strict", action="store_true", help="fail where something was not measured")
    given = parser.parse_args()
    card = Card(given.run, given.model, given.records, given.minutes, given.recipe)
    text = card.text()
    given.out.write_text(text, encoding="utf-8", newline="\n")
    for what in dict.fromkeys(card.missing):
        print(f"not measured: {what}", file=sys.stderr)
    if given.strict and card.missing:
        sys.exit(1)


if __name__ == "__main__":
    main()
