#!/usr/bin/env python3
"""Writes the card of a shipped English model from the records of its run; edit script or records, not the card.

    python runs/model_card.py RUN --model elmo/models/english --records records/ --minutes 60 \\
      --recipe runs/english_second/recipe.toml --out docs/model_card.md

RUN is the folder that `elmo pretrain` wrote: config.toml, report.json, metrics.jsonl. The manifest in the model's
folder has the checksums. The records folder holds JSON (or JSON lines) that our commands print; a record is recognised
by its contents, and except for lm1b its file name is free:

    elmo perplexity MODEL heldout/*.xz --tokenizer default --json > heldout.json    perplexity by source
    elmo perplexity MODEL lm1b.txt --json                        > lm1b.json       another domain; the name says so
    elmo probe ... --json                                        > pos.json        also of other vectors, to compare
    elmo demo --model MODEL --json                               > demo.json       similarity of words in context
    {"text": ..., "exact": {name: {"mean": ...}}, "rounded": ...}  rounding.json   perplexity before and after rounding
    python benchmarks/minilm_speed.py TEXT | tail -1             > speed.json      words per second
    RUN/report.json of `elmo finetune`                           > biomedical.json a domain variant, before and after

The card says "not measured" for each missing value, and standard error lists them; --strict makes them a failure.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Record = dict[str, Any]

HERE = Path(__file__).resolve().parent
MISSING = "not measured"
LAYERS = ("0", "1", "2")


class Card:
    """The text of a card, from the records of a run; `missing` lists what could not be filled in."""

    def __init__(
        self,
        run: Path,
        model: Path,
        records: Path | None,
        *,
        minutes: float | None,
        hardware: str,
        recipe: str,
        out: Path,
        compared: Path | None = None,
        note: str = "",
        on_cpu: bool = False,
    ) -> None:
        self.report = read_json(run / "report.json")
        self.config = tomllib.loads((run / "config.toml").read_text(encoding="utf-8"))
        self.steps = read_lines(run / "metrics.jsonl")
        self.shape = read_json(model / "config.json")
        self.files = read_json(model / "manifest.json")["files"]
        self.sources = tomllib.loads((HERE / "sources.toml").read_text(encoding="utf-8"))
        self.name = self.shape.get("about", {}).get("name") or "english"
        self.minutes, self.hardware, self.recipe, self.out, self.note = minutes, hardware, recipe, out, note
        self.compared, self.on_cpu = compared, on_cpu
        self.records = read_records(records)
        self.records += [(name, record) for name, record in read_records(compared) if "probe" in record]
        self.missing: list[str] = []

    def not_measured(self, what: str) -> str:
        """The text in place of a missing value, which is added to the list of what is missing."""
        self.missing.append(what)
        return MISSING

    def text(self) -> str:
        """The whole card in Markdown."""
        sections = (
            *(self.head, self.data, self.filtering, self.training, self.perplexity, self.news),
            *(self.probes, self.similarity, self.speed, self.variant, self.limits, self.reproduction),
        )
        return "\n\n".join(text for section in sections if (text := section())) + "\n"

    def head(self) -> str:
        model, lstm, chars = self.shape["model"], self.shape["model"]["lstm"], self.shape["model"]["chars"]
        load, model_name = (
            ("elmo.load()", "default") if self.name == "english" else (f'elmo.load("{self.name}")', self.name)
        )
        head = model.get("head") or {}
        kind = (
            f"adaptive, clusters from {' and '.join(f'{n:,}' for n in head['cutoffs'])}; "
            if head.get("cutoffs")
            else ""
        )
        filters = sum(count for _, count in chars["filters"])
        words = f"{kind}{head['vocab_size']:,} words" if head else "none"
        without = " --without-head" if kind else ""
        return f"""# The model `{self.name}`

<!-- written by runs/model_card.py from the records of the run; not edited by hand -->

An English biLM (ELMo, Peters et al. 2018) that is part of the package: `{load}` loads it; `elmo score`,
`perplexity` and `finetune` use its softmax.

- {lstm["num_layers"]} layers per direction, {lstm["cell_dim"]:,} cells, projection {lstm["proj_dim"]};
  {filters:,} character filters, highways: {chars["num_highways"]};
  {lstm["num_layers"] + 1} layers of vectors, each {2 * lstm["proj_dim"]} wide.
- Softmax: {words}. The input can be any word, because words are read as bytes.
- {stored_as(self.shape, self.files)}; the numbers below are those of the
  stored model unless stated otherwise. It exports to options.json + weights.hdf5
  (`elmo convert {model_name} out --to hdf5{without}`).
- Licence of the weights: CC BY-SA 4.0, because much of the text is under CC BY-SA. It is unsettled whether such a
  licence applies to weights; we follow the stricter reading. The code is Apache-2.0.

{file_table(self.files)}"""

    def used(self) -> dict[str, dict[str, Any]]:
        """The sources in sources.toml that the run was trained on, by name."""
        files = [Path(file).name for file in self.config["data"]["files"]]
        return {name: s for name, s in self.sources.items() if any(file.startswith(f"{name}.") for file in files)}

    def data(self) -> str:
        used = self.used()
        files = [Path(file).name for file in self.config["data"]["files"]]
        unlisted = [file for file in files if not any(file.startswith(f"{name}.") for name in used)]
        rows = [["source", "what", "words (M)", "licence", "from"]]
        rows += [[f"`{n}`", s["what"], f"{s['words']:.1f}", s["licence"], s["from"]] for n, s in used.items()]
        rows += [[f"`{file}`", self.not_measured(f"runs/sources.toml: {file}"), "", "", ""] for file in unlisted]
        rows.append(["all", "", f"{sum(s['words'] for s in used.values()):.1f}", "", ""])
        unused = [name for name in self.sources if name not in used]
        note = f"\n\nAvailable but not used: {', '.join(unused)}." if unused else ""
        counts = "Words are counted before tokenisation; about one percent of each source is held out."
        return f"## Text\n\n{table(rows, 'llrll')}\n\n{counts}{note}"

    def filtering(self) -> str:
        data = self.config["data"]
        tokenizer = data["reading"].get("tokenize") or "none, the text was tokenised already"
        words = f"{data['max_vocab']:,} most frequent words" if data.get("max_vocab") else "words"
        return f"""## What was filtered

Duplicate paragraphs were removed, and held-out paragraphs do not occur in the training part. This package split the
text into sentences and tokenised it (tokenizer: {tokenizer}); nothing was lower-cased, no words were removed, and
no names, addresses or opinions were masked. The softmax has the {words} that occur at least {data["min_count"]} times.
Other words are predicted as `<UNK>`, but are read like any other word."""

    def training(self) -> str:
        train, optim, objective = (self.config[name] for name in ("train", "optim", "objective"))
        tokens = train["rows"] * train["steps"]
        validations = [r for r in self.steps if "validation" in r]
        last = max((r["step"] for r in self.steps), default=0)
        if not validations:
            self.not_measured("metrics.jsonl: validation records")
        rows = [["step", "tokens (M)", "minutes (about)", "held out, reset", "held out, carried"]]
        for record in evenly_spaced(validations, 12):
            step, held = record["step"], record["validation"]
            minutes = f"{self.minutes * step / last:.1f}" if self.minutes else self.not_measured("--minutes")
            carried = f"{held['carried']['mean']:.1f}" if "carried" in held else ""
            rows.append([f"{step:,}", f"{step * tokens / 1e6:.1f}", minutes, f"{held['reset']['mean']:.1f}", carried])
        return f"""## Training

Recipe `{self.config["recipe"]}`, seed {train["seed"]}: {optim["name"]}, learning rate {optim["lr"]:g},
{optim["decay"]} decay, warm-up {optim["warmup"]:g}, gradients clipped at {optim["clip_norm"]:g};
{train["rows"]:,} rows of {train["steps"]} tokens per step, {objective["softmax"]} softmax, dropout
{objective["dropout"]:g}, {train["precision"]}; {last:,} steps. A sentence starts from a fresh
state with probability {train["reset"]:g}.

{table(rows, "rrrrr")}

Perplexity on the validation sample during training, before the weights were rounded."""

    def perplexity(self) -> str:
        matches = self.select(lambda name, r: "reset" in r and "by_source" in r and "lm1b" not in name)
        model = "the stored model"
        if not matches and "perplexity" in self.report:
            matches = [("", self.report["perplexity"] | {"definition": self.report["definition"]})]
            model = "the run's weights before rounding"
        rows = [["domain", "source", "words", "unknown", "forward", "backward", "mean", "mean, carried"]]
        for _, record in matches[:1]:
            for source, one in {**record["by_source"], "all": record}.items():
                name = next((n for n in self.sources if Path(source).name.startswith(f"{n}.")), source)
                rows.append([self.sources.get(name, {}).get("domain", ""), name, *perplexity_cells(one)])
        definition = matches[0][1]["definition"] if matches else self.not_measured("perplexity by source")
        parts = ["## Held-out perplexity by domain", f"Measured on {model}.", table(*filled_columns(rows, "llrrrrrr"))]
        return "\n\n".join([*parts, f"{escape_html(definition)}.", *self.rounding()])

    def rounding(self) -> list[str]:
        """The perplexity before and after the model was rounded; empty if it was not measured."""
        matches = self.select(lambda _, r: "rounded" in r and "exact" in r)
        rows = [["text", "words", "before rounding", "stored"]]
        for _, record in matches[:1]:
            for name, one in record["rounded"].items():
                rows.append([name, f"{one['words']:,}", f"{record['exact'][name]['mean']:.2f}", f"{one['mean']:.2f}"])
        if not matches:
            return []
        return [f"Perplexity before and after rounding ({matches[0][1]['text']}):", table(rows, "lrrr")]

    def news(self) -> str:
        matches = self.select(lambda name, r: "reset" in r and "lm1b" in name)
        text = "1B Word, held-out shards 10 and 11"
        rows = [["text", "words", "unknown", "forward", "backward", "mean", "mean, carried"]]
        rows += [[record.get("note", text), *perplexity_cells(record)] for _, record in matches[:1]]
        if not matches:
            rows.append([text, self.not_measured("records: lm1b"), "", "", "", "", ""])
        return f"""## News, another domain

The held-out sample of the 1 Billion Word Benchmark is news of 2011 with its own tokenisation; the model was not trained
on such text. The paper's 39.7 is for a larger model, trained on 768 million words of exactly this text with its own
vocabulary, so the two numbers do not compare the models.

{table(rows, "lrrrrrr")}"""

    def probes(self) -> str:
        blocks = ["## Probes\n\nA small classifier on frozen vectors; higher is better. `elmo probe` repeats them."]
        for kind, title in PROBE_TITLES.items():
            records = [record for _, record in self.records if record.get("probe") == kind]
            rows = [row for record in records for row in PROBE_ROWS[kind](record)]
            head = ["vectors", *(f"layer {n}" for n in LAYERS), "best view"]
            unique = [row for n, row in enumerate(rows) if row not in rows[:n]]  # every record has the baselines
            body = table([head, *unique], "lrrrr") if rows else self.not_measured(f"records: probe {kind}")
            blocks.append(f"**{title}**\n\n{body}")
        return "\n\n".join(blocks)

    def similarity(self) -> str:
        matches = self.select(lambda _, r: "senses" in r and "neighbours" in r)
        if not matches:
            return f"## Words in context\n\n{self.not_measured('records: elmo demo --json')}"
        senses = matches[0][1]["senses"]
        num_layers = len(next(iter(senses.values())))
        rows = [["word", *(f"layer {n}" for n in range(num_layers))]]
        rows += [[w, *(f"{v['within']:.2f} / {v['between']:.2f}" for v in layers)] for w, layers in senses.items()]
        nearest = [sum(layers[n]["nearest"] for layers in senses.values()) / len(senses) for n in range(num_layers)]
        rows.append(["nearest use has the same sense", *(f"{share:.0%}" for share in nearest)])
        return f"""## Words in context

Mean cosine of two uses of a word in the same sense / in different senses, in the sentences of `elmo demo` (six words
with two senses, four sentences per sense; layer 0 has no context, so its share of nearest uses is chance):

{table(rows, "lrrr")}"""

    def speed(self) -> str:
        """Words per second by number type, beside another network; empty if it was not measured."""
        matches = self.select(lambda _, r: "words_per_second" in r)
        if not matches:
            return ""
        record = matches[0][1]
        systems: dict[str, dict[str, str]] = {key.rpartition(" ")[0]: {} for key in record["words_per_second"]}
        for key, rates in record["words_per_second"].items():
            system, _, dtype = key.rpartition(" ")
            systems[system][dtype] = f"{statistics.median(rates):,.0f}"
        dtypes = ("float32", "bfloat16", "int8")
        machine = record.get("machine", f"{record['threads']} threads")
        rows = [["words per second", *dtypes]]
        rows += [[name, *(rates.get(dtype, "") for dtype in dtypes)] for name, rates in systems.items()]
        return f"""## Speed

From token lists to arrays of all layers, {record["sentences"]:,} sentences, {machine};
MiniLM (all-MiniLM-L6-v2) is its network alone. `benchmarks/minilm_speed.py` repeats it.

{table(rows, "lrrr")}"""

    def variant(self) -> str:
        """Fine-tuned variants; empty if there are none."""
        matches = self.select(lambda _, r: "before" in r and "after" in r)
        if not matches:
            return ""
        rows = [["variant", "text", "before", "after"]]
        for name, record in matches:
            for source, after in (record["after"].get("by_source") or {"all": record["after"]}).items():
                before = ((record["before"] or {}).get("by_source") or {"all": record["before"] or {}}).get(source, {})
                before_mean = f"{before['reset']['mean']:.1f}" if "reset" in before else "no softmax"
                after_mean = f"{after['reset']['mean']:.1f}"
                rows.append([record.get("note", name), Path(source).name, before_mean, after_mean])
        return f"## A domain variant\n\nMade with `elmo finetune`; perplexity, state reset.\n\n{table(rows, 'llrr')}"

    def limits(self) -> str:
        words = sum(source["words"] for source in self.used().values())
        hours = f"{self.minutes:.0f} minutes on {self.hardware}" if self.minutes else "little time"
        info = f"elmo info {'default' if self.name == 'english' else self.name}"
        return f"""## Biases and limits

- The text is what is openly available (see above): formal, edited writing, much of it British or American, much of it
  by and about men; novels and speeches carry the views of their time on women, races, classes and religions. The
  vectors and the predicted words reflect all of that. Do not rank or judge people with them.
- English only. Tweets, chats, code and other languages are far from the training text; words are read as bytes,
  so nothing fails, but the vectors mean less.
- Small: {words:.0f} million words and {hours}; the paper's model had 768 million words.
  If you can afford a current transformer, compare with one first; this model is for small machines, offline use,
  study, and as a starting point for `elmo finetune`.
- It is not a source of facts; its substitutes are guesses at form and fit.
- Stored numbers are rounded; `{info}` says how. The loaded weights are exactly those that were measured."""

    def reproduction(self) -> str:
        folder, storage = f"elmo/models/{self.name}", convert_options(self.shape)
        exactness = "model" if self.on_cpu else "model up to rounding differences in the sums of a GPU"
        processor = "CPU" if self.on_cpu else "GPU"
        return f"""## Train it again

    elmo pretrain --config {self.recipe} --out run       # needs the text above and a {processor}
    elmo convert run/model {folder} {storage} --name {self.name} --overwrite
    python runs/model_card.py run --model {folder} --records records/ \\
      {self.given_options()} \\
      --out {self.out}
    elmo convert run/model {folder} {storage} --name {self.name} --card {self.out} --overwrite

A run that was interrupted continues when the command is started again. The same text, seed and settings give the same
{exactness}.{self.note and f" {self.note}"}"""

    def given_options(self) -> str:
        """The options of this script, as a command line, on which the text depends besides run, model and records."""
        options = ["--recipe", self.recipe, "--hardware", self.hardware, *(["--cpu"] if self.on_cpu else [])]
        for name, value in (("--minutes", self.minutes), ("--compare", self.compared), ("--note", self.note)):
            options += [name, f"{value:g}" if isinstance(value, float) else str(value)] if value else []
        return shlex.join(options)

    def select(self, matches: Callable[[str, Record], bool]) -> list[tuple[str, Record]]:
        """The records, with the names of their files, for which `matches(name, record)` is true."""
        return [(name, record) for name, record in self.records if matches(name, record)]


PROBE_TITLES = {
    "pos": "Part of speech, XPOS, UD English EWT, test accuracy",
    "ner": "Named entities, UNER English EWT, test F1",
    "wsd": "Word senses, SemCor to Raganato's ALL, F1 with first-sense back-off (without)",
    "wic": "Word in Context, dev accuracy",
}


def tag_rows(record: Record) -> Iterable[list[str]]:
    """Rows of a linear probe: each layer, the view that is best on dev, and the baseline."""
    views = record["scores"]["views"]
    yield [vectors_of(record), *layer_cells(views, lambda v: f"{v['test']:.1f}"), best_cell(views, "dev", "test")]
    if "most_frequent_tag" in record["scores"]:
        yield ["most frequent tag of the word", "", "", "", f"{record['scores']['most_frequent_tag']['test']:.1f}"]


def wsd_rows(record: Record) -> Iterable[list[str]]:
    """Rows of word sense disambiguation: each layer, the best view, and the baseline."""
    scores = record["scores"]
    total = next(name for name in scores["wordnet_first_sense"] if name.lower() == "all")
    plain = {name: forms["plain"] for name, forms in scores["views"].items()}
    cells = layer_cells(plain, lambda v: f"{v[total]:.1f} ({v['no_back_off']:.1f})")
    yield [vectors_of(record), *cells, best_cell(plain, total, total)]
    yield ["WordNet's first sense", "", "", "", f"{scores['wordnet_first_sense'][total]:.1f}"]


def wic_rows(record: Record) -> Iterable[list[str]]:
    """The row of Word in Context: accuracy of the threshold on dev."""
    plain = {name: forms["plain"] for name, forms in record["scores"]["views"].items()}
    yield [vectors_of(record), *layer_cells(plain, lambda v: f"{v['dev']:.1f}"), best_cell(plain, "dev", "dev")]


PROBE_ROWS: dict[str, Callable[[Record], Iterable[list[str]]]] = {
    "pos": tag_rows,
    "ner": tag_rows,
    "wsd": wsd_rows,
    "wic": wic_rows,
}


def vectors_of(record: Record) -> str:
    return str(record["vectors"].get("name", "?"))


def layer_cells(views: dict[str, Any], show: Callable[[Record], str]) -> list[str]:
    by_layer = {name.removeprefix("layer").strip(" _-"): view for name, view in views.items()}
    return [show(by_layer[layer]) if layer in by_layer else "" for layer in LAYERS]


def best_cell(views: dict[str, Any], by: str, shown: str) -> str:
    name, view = max(views.items(), key=lambda item: item[1][by])
    return f"{view[shown]:.1f} ({f'layer {name}' if name.isdigit() else name})"


def perplexity_cells(record: Record) -> list[str]:
    """Words, unknown, forward, backward, mean and carried mean of `elmo perplexity` or of a run's report."""
    reset = record.get("reset", record)
    words = f"{record['words']:,}" if "words" in record else ""
    unknown = f"{record['unknown']:.1%}" if "unknown" in record else ""
    carried = f"{record['carried']['mean']:.1f}" if "carried" in record else ""
    return [words, unknown, *(f"{reset[k]:.1f}" for k in ("forward", "backward", "mean")), carried]


def stored_as(shape: Record, files: Record) -> str:
    """The number types of a stored model, and its size."""
    softmax = f", the softmax in {shape['head_bits']} bits" if shape.get("head_bits") else ""
    megabytes = sum(file["bytes"] for file in files.values()) / 1e6
    return f"Stored as {shape.get('storage', 'float32')}{softmax}, {megabytes:.1f} MB"


def convert_options(shape: Record) -> str:
    """The options of `elmo convert` that store a model in this way."""
    bits = shape.get("head_bits")
    return f"--storage {shape.get('storage', 'float32')}" + (f" --head-bits {bits}" if bits else "")


def file_table(files: Record) -> str:
    """Size and checksum of each file of a stored model but its card."""
    rows = [["file", "bytes", "sha256"]]
    rows += [[n, f"{f['bytes']:,}", f"`{f['sha256']}`"] for n, f in files.items() if n != "README.md"]
    return table(rows, "lrl")


def escape_html(text: str) -> str:
    return text.replace("<", "&lt;").replace(">", "&gt;")  # <S> is not a tag


def table(rows: Sequence[Sequence[str]], align: str) -> str:
    """A Markdown table whose first row is its head; `align` has l or r for each column."""
    rule = ["--:" if side == "r" else "---" for side in align]
    return "\n".join(f"| {' | '.join(row)} |" for row in (rows[0], rule, *rows[1:]))


def filled_columns(rows: Sequence[Sequence[str]], align: str) -> tuple[list[list[str]], str]:
    """Rows and alignment without the columns that are empty in every row except the head."""
    kept = [column for column in range(len(align)) if any(row[column] for row in rows[1:])]
    return [[row[column] for column in kept] for row in rows], "".join(align[column] for column in kept)


def evenly_spaced(records: list[Record], count: int) -> list[Record]:
    """At most `count` of the records, at even distances, including the last."""
    if len(records) <= count:
        return records
    return [records[round((n + 1) * len(records) / count) - 1] for n in range(count)]


def read_records(folder: Path | None) -> list[tuple[str, Record]]:
    """The records of all files of a folder, each with the name of its file."""
    paths = sorted(folder.glob("*.json*")) if folder else ()
    return [(path.stem, record) for path in paths for record in read_lines(path)]


def read_json(path: Path) -> Record:
    return json.loads(path.read_text(encoding="utf-8"))


def read_lines(path: Path) -> list[Record]:
    """The JSON object of a file, or one object per line; values that are not objects are left out."""
    text = path.read_text(encoding="utf-8")
    try:
        values = [json.loads(text)]
    except json.JSONDecodeError:
        values = [json.loads(line) for line in text.splitlines() if line.strip()]
    return [record for record in values if isinstance(record, dict)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of the pretraining run")
    parser.add_argument("--model", type=Path, required=True, help="folder of the shipped model")
    parser.add_argument("--records", type=Path, help="folder of JSON records")
    parser.add_argument("--compare", type=Path, help="folder of JSON records: probes of other vectors, for comparison")
    parser.add_argument("--note", default="", help="a sentence for the end of the section on training the model again")
    parser.add_argument("--minutes", type=float, help="duration of the training in minutes")
    parser.add_argument("--hardware", default="one GPU", help="what it was trained on")
    parser.add_argument("--cpu", action="store_true", help="the model was trained on a CPU")
    parser.add_argument("--recipe", required=True, help="the committed settings of the run")
    parser.add_argument("--out", type=Path, required=True, help="the Markdown file to write")
    parser.add_argument("--strict", action="store_true", help="fail if something was not measured")
    options = parser.parse_args()
    card = Card(
        options.run,
        options.model,
        options.records,
        minutes=options.minutes,
        hardware=options.hardware,
        recipe=options.recipe,
        out=options.out,
        compared=options.compare,
        note=options.note,
        on_cpu=options.cpu,
    )
    text = card.text()
    options.out.write_text(text, encoding="utf-8", newline="\n")
    for what in dict.fromkeys(card.missing):
        print(f"not measured: {what}", file=sys.stderr)
    if options.strict and card.missing:
        sys.exit(1)


if __name__ == "__main__":
    main()
