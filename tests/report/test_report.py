"""The report from hand-made records of every kind: collecting them, the verdicts, and a valid page."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest
from sample_records import (
    DEMO,
    FINETUNED,
    GEOMETRY,
    PERPLEXITY,
    SIMILAR,
    full_set,
    probe_record,
    task_record,
    training_report,
    write_all,
)

from elmo.charts.svg import COLORS, contrast
from elmo.errors import ConfigError, DataError
from elmo.records import make_record
from elmo.report.build import make_page, write_page
from elmo.report.collect import RecordFile, Records, collect
from elmo.report.findings import check_findings
from elmo.report.html import PAPER_ADDRESS, as_html
from elmo.report.markdown import as_markdown
from elmo.report.page import Missing
from elmo.report.results import compute_results
from elmo.report.sources import shorten, shorten_command
from elmo.report.stylesheet import BACKGROUNDS, VERDICTS, style_sheet

VOID = {"meta", "link", "img", "br", "hr", "input", "path", "rect", "circle", "line", "polyline", "polygon"}
SECTIONS = (
    "findings", "six-tasks", "layers", "places", "neighbours", "senses", "tags", "efficiency", "mixes", "contexts",
    "language-model",
)  # fmt: skip


class Checker(HTMLParser):
    """A strict parser that checks how tags open and close, and collects ids, links and loaded addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.tags.append((tag, values))
        self.ids += [values["id"]] if "id" in values else []
        self.links += [values["href"]] if tag == "a" else []
        self.loaded += [values[name] for name in ("src", "srcset", "data", "poster") if name in values]
        self.loaded += [values["href"]] if tag in ("link", "use", "image", "base") and "href" in values else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> closes another tag, line {self.getpos()}"


def parse_strictly(html: str) -> Checker:
    checker = Checker()
    checker.feed(html)
    checker.close()
    assert checker.open == []
    assert len(set(checker.ids)) == len(checker.ids)
    for link in checker.links:
        assert link == PAPER_ADDRESS or (link.startswith("#") and link[1:] in checker.ids), link
    assert all(source.startswith("data:") for source in checker.loaded), checker.loaded
    assert "http" not in re.sub(r"http://www.w3.org/2000/svg|" + re.escape(PAPER_ADDRESS), "", html)
    assert not re.search(r"url\(|@import", html)
    return checker


def test_every_kind_of_record_is_collected(tmp_path):
    records = collect([write_all(tmp_path)])
    assert len(records.tasks) == len(full_set())
    assert [f.values["probe"] for f in records.probes] == ["ner", "pos", "similarity", "wic", "wsd"]
    kinds = (records.trainings, records.finetunings, records.demos, records.neighbours, records.geometries)
    assert list(map(len, kinds)) == [1, 1, 1, 1, 1]
    assert len(records.perplexities) == 1
    assert len(next(iter(records.courses.values()))) == 2
    assert len(records) == len(full_set()) + 11
    assert records.unread == []
    assert all(f.path.startswith(f"{tmp_path.name}/") for f in records.probes), "paths begin at the given folder"


def test_broken_files_are_reported_and_other_json_is_ignored(tmp_path):
    (tmp_path / "cut.json").write_text('{"format": "elmo-ta', encoding="utf-8")
    (tmp_path / "other.json").write_text('{"name": "x"}', encoding="utf-8")
    (tmp_path / "list.json").write_text("[1, 2]", encoding="utf-8")
    records = collect([tmp_path, tmp_path / "other.json"])
    assert len(records) == 0
    assert [line.split(":")[0] for line in records.unread] == [f"{tmp_path.name}/cut.json"]
    with pytest.raises(DataError, match="does not exist"):
        collect([tmp_path / "nowhere"])


def test_the_page_is_valid_and_complete(tmp_path):
    page, _ = make_page(collect([write_all(tmp_path)]))
    html = as_html(page)
    checker = parse_strictly(html)
    assert all(key in checker.ids for key in SECTIONS)
    tags = [tag for tag, _ in checker.tags]
    for landmark in ("header", "nav", "main", "footer", "h1"):
        assert tags.count(landmark) == 1
    tables, captions = tags.count("table"), tags.count("caption")
    assert tables == captions >= 14
    assert all(values.get("scope") in ("col", "row") for tag, values in checker.tags if tag == "th")
    # table 1, the top layer, two curves, mixes, a course, words in context, senses, tags, geometry
    assert tags.count("figure") == tags.count("figcaption") == 10
    svgs = [values for tag, values in checker.tags if tag == "svg"]
    assert all(set(values["aria-labelledby"].split()) <= set(checker.ids) for values in svgs)
    assert not any(isinstance(part, Missing) for section in page.sections for part in section.parts)
    assert "/home/me" not in html, "absolute paths are not shown"
    assert "&lt;lent&gt; &amp; lent" in html


def test_every_score_of_ours_links_to_its_command(tmp_path):
    page, _ = make_page(collect([write_all(tmp_path)]))
    html = as_html(page)
    link = re.search(r'<a href="#(record-\d+)">64\.50 ± 0\.71</a>', html)  # SNLI, last layer alone: 64 and 65
    assert link
    record = re.search(rf'<li id="{link[1]}">.*?</li>\n', html, re.S)[0]
    assert "SNLI with ELMo (top layers, λ 0.001, input), seeds 0, 1" in record
    assert "elmo task train snli --set data.train=data/train.txt" in record
    assert "seed-" not in record.split("<ul>")[0]
    probe = next(source for source in page.sources if source.title.startswith("Probe pos"))
    assert probe.command == "elmo probe pos DATA --model me/my-model --column upos --seed 3 --limit 100"
    assert len({source.key for source in page.sources}) == len(page.sources)


def test_without_records_every_section_names_the_command_that_makes_them():
    page, findings = make_page(Records())
    parse_strictly(as_html(page))
    missing = {s.key: [part.command for part in s.parts if isinstance(part, Missing)] for s in page.sections}
    assert missing.pop("findings") == []
    assert all(missing.values()), missing
    assert all(finding.holds is None for finding in findings)
    assert all(line.startswith("elmo ") for commands in missing.values() for c in commands for line in c.splitlines())


def test_findings_are_compared_with_the_records(tmp_path):
    holds = {one.key: one.holds for one in check_findings(compute_results(collect([write_all(tmp_path)])))}
    assert holds == {
        "elmo-helps": 1,
        "all-beat-last": 1,
        "last-beats-none": 1,
        "learned-beats-average": 1,
        "places": -1,  # output is best for SNLI here, both in the paper
        "senses-upper": 1,
        "tags-lower": 1,
        "shares": 1,
        "updates": 0,  # both are best at update 20, and reach it there
        "mix-input": 1,  # 0.5 for layer 1 in all, the next 0.3
        "mix-output": -1,  # 0.5 is far from a third
    }


def findings_of(*tasks, probes=()):
    return {one.key: one for one in check_findings(compute_results(Records(tasks=list(tasks), probes=list(probes))))}


def test_a_difference_within_the_deviation_is_not_significant():
    records = [task_record(seed=s, elmo=e, test=60 + 4 * s + e) for s in (0, 1) for e in (False, True)]
    gain = findings_of(*records)["elmo-helps"]
    assert (gain.holds, gain.here) == (0, "NER +1.00")
    untrained = RecordFile("p", probe_record("pos", trained=False, low=10, high=20))
    assert findings_of(probes=[untrained])["tags-lower"].holds is None
    upside_down = RecordFile("p", probe_record("pos", low=10, high=20))
    assert findings_of(probes=[upside_down])["tags-lower"].holds == -1


def test_a_task_with_one_seed_is_tested_with_the_deviation_of_the_others():
    alone = [task_record("squad", elmo=e, test=60 + 6 * e) for e in (False, True)]
    gain = findings_of(*alone)["elmo-helps"]
    assert (gain.holds, gain.here) == (0, "SQuAD +6.00 (one seed)")
    others = [task_record(seed=s, elmo=e, test=60 + s + 9 * e) for s in (0, 1) for e in (False, True)]
    gain = findings_of(*alone, *others)["elmo-helps"]  # 0.71 over seeds: 4.30 * 0.71 * sqrt(2) = 4.3
    assert (gain.holds, gain.cases) == (1, (2, 2))


def test_updates_are_saved_if_every_seed_saves_them():
    def runs(seed: int, reached: int):
        curve = [(10, 50.0), (40, 60.0)]
        with_elmo = [(reached, 60.0), (90, 61.0)]
        return [task_record(elmo=False, seed=seed, updates=curve), task_record(seed=seed, updates=with_elmo)]

    every, some, none = ([*runs(0, 10), *runs(1, second)] for second in (20, 80, 80))
    assert (findings_of(*every)["updates"].holds, findings_of(*every)["updates"].here) == (1, "NER 62% fewer")
    assert findings_of(*some)["updates"].holds == 0
    assert findings_of(*some)["updates"].here == "NER -12% fewer (1 of 2 seeds sooner)"
    assert findings_of(*none[2:])["updates"].holds == -1


def test_a_probes_difference_must_exceed_twice_its_standard_error():
    record = probe_record("wsd", low=64.0, high=64.8)
    # of the difference: 100 * sqrt(2 * 0.64 * 0.36 / n): 0.68 of 10,000 targets, 0.21 of 100,000
    for count, holds in ((10_000, 0), (100_000, 1)):
        record["counts"] = {"targets": count}
        assert findings_of(probes=[RecordFile("p", record)])["senses-upper"].holds == holds


def test_notes_explain_and_unknown_ones_are_refused(tmp_path):
    records = collect([write_all(tmp_path)])
    page, _ = make_page(records, notes={"places": "SNLI is short here."})
    explained = "<details{}><summary>Explanation</summary>{}SNLI is short here."
    assert "✗ differs from the paper</span>" + explained.format(' class="more"', "\n<p>") in as_html(page)
    assert "✗ differs from the paper" + explained.format("", "") in as_markdown(page)
    assert "✗ differs from the paper, agrees in 0 of 4 cases; open" in as_html(page)
    page, _ = make_page(records, notes={"neighbours": "Sentences of <Wikipedia>."})
    assert "<p>Sentences of &lt;Wikipedia&gt;.</p>" in as_html(page)
    with pytest.raises(ConfigError, match="'place'"):
        make_page(records, notes={"place": "?"})


def test_of_a_long_note_the_first_sentence_is_shown_and_the_rest_unfolds(tmp_path):
    records = collect([write_all(tmp_path)])
    page, _ = make_page(records, notes={"senses": "Ours are from SemCor 3.0 by <X>. The paper's biLM is wider. So."})
    html, markdown = as_html(page), as_markdown(page)
    first = "<summary>Ours are from SemCor 3.0 by &lt;X&gt;.</summary>"
    assert f"{first}\n<p>The paper&#x27;s biLM is wider. So.</p>" in html
    assert f"{first}\n\nThe paper's biLM is wider. So.\n" in markdown
    parse_strictly(html)


def test_the_page_opens_with_table_1_as_bars_and_with_words_in_context(tmp_path):
    page, _ = make_page(collect([write_all(tmp_path)]))
    bars, words = page.opening.parts
    assert "The paper's gains are +0.7 to +2.1; ours are +16.0 to +22.0." in bars.caption, "SNLI and NER"
    assert "in 100% of the uses and in 50% without context" in words.caption, "from the record of the demo"
    html, markdown = as_html(page), as_markdown(page)
    assert html.index('id="six-tasks-picture"') < html.index("<nav") < html.index('id="findings"')
    places = [markdown.index(text) for text in ("six-tasks-picture.svg", "words-top-layer.svg", "## Findings")]
    assert places == sorted(places)
    assert make_page(Records())[0].opening is None


def test_files_are_written_and_markdown_shows_its_pictures(tmp_path):
    page, _ = make_page(collect([write_all(tmp_path / "runs")]))
    files = write_page(page, tmp_path / "out" / "report")
    names = {file.name for file in files}
    text = (tmp_path / "out" / "report" / "README.md").read_text(encoding="utf-8")
    assert text == as_markdown(page)
    shown = set(re.findall(r"\]\(([\w-]+\.svg)\)", text))
    assert shown == {name for name in names if name.endswith(".svg")}
    anchors = set(re.findall(r'<a id="([\w-]+)">', text))
    assert set(re.findall(r"\]\(#([\w-]+)\)", text)) <= anchors
    for line in text.splitlines():
        assert not line.startswith("```") or line in ("```sh", "```"), "readers of docs run no command from here"
    widths = [len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines() if line.startswith("|")]
    assert min(widths) >= 3
    assert write_page(page, tmp_path / "out" / "report") == files, "a second run replaces the files"


def test_text_has_enough_contrast_on_every_background():
    for side in (0, 1):
        backgrounds = [COLORS["ground"][side], *(pair[side] for pair in BACKGROUNDS.values())]
        texts = {name: COLORS[name] for name in ("ink", "faint", "first", "second", "third")} | VERDICTS
        for name, pair in texts.items():
            for background in backgrounds:
                assert contrast(pair[side], background) >= 4.5, (name, background)
    assert style_sheet().count("{") == style_sheet().count("}")


def test_absolute_paths_are_shortened():
    assert shorten({"a": ["/x/y/z.txt", "plain/path", 3], "b": {"c": "C:\\Users\\me\\f.txt"}}) == {
        "a": ["y/z.txt", "plain/path", 3],
        "b": {"c": "me/f.txt"},
    }
    assert shorten_command("elmo task train ner --set data.train='/a b/c d/e.txt' --out /q") == (
        "elmo task train ner --set 'data.train=c d/e.txt' --out q"
    )
    json.dumps(shorten(task_record()))


def in_envelope(kind, values):
    """A record of the form from before the envelope, as it is written today."""
    body = {name: value for name, value in values.items() if name not in ("format", "version", "command", "versions")}
    return make_record(kind, body, command=values.get("command"))


def test_old_and_new_records_of_one_kind_are_read_alike(tmp_path):
    old = {**{f"{name}.json": probe_record(name) for name in ("pos", "wsd")}, "geometry.json": GEOMETRY}
    new = {name: in_envelope("geometry" if name == "geometry.json" else "probe", old[name]) for name in old}
    for folder, records in (("old", old), ("new", new)):
        (tmp_path / folder).mkdir()
        for name, values in records.items():
            (tmp_path / folder / name).write_text(json.dumps(values), encoding="utf-8")
    for records in (collect([tmp_path / "old"]), collect([tmp_path / "new"])):
        assert [probe.values["probe"] for probe in records.probes] == ["pos", "wsd"]
        assert (len(records.geometries), records.unread) == (1, [])


def test_an_incomplete_old_task_record_is_reported(tmp_path):
    record = {name: value for name, value in task_record().items() if name != "best"}
    (tmp_path / "record.json").write_text(json.dumps(record), encoding="utf-8")
    assert "a record of task without best" in collect([tmp_path]).unread[0]


def test_a_record_of_a_newer_version_is_reported(tmp_path):
    newer = {**in_envelope("geometry", GEOMETRY), "version": 99}
    (tmp_path / "g.json").write_text(json.dumps(newer), encoding="utf-8")
    records = collect([tmp_path])
    assert len(records) == 0
    assert "version 99" in records.unread[0]


def remove_each_part(values):
    """Copies of a record, each without one of its parts, at every depth."""
    keys = values if isinstance(values, dict) else range(len(values)) if isinstance(values, list) else ()
    for key in keys:
        if isinstance(values, dict):
            yield {k: v for k, v in values.items() if k != key}
        else:
            yield values[:key] + values[key + 1 :]
        for shorter in remove_each_part(values[key]):
            copy = dict(values) if isinstance(values, dict) else list(values)
            copy[key] = shorter
            yield copy


RECORDS = {
    "task": task_record(),
    **{name: probe_record(name) for name in ("pos", "wsd", "wic", "similarity")},
    "training": training_report(),
    "finetuning": FINETUNED,
    "perplexity": PERPLEXITY,
    "demo": DEMO,
    "similar": SIMILAR,
    "geometry": GEOMETRY,
}
KIND_OF_NAME = {"similar": "neighbours", **dict.fromkeys(("pos", "wsd", "wic", "similarity"), "probe")}


@pytest.mark.parametrize("has_envelope", [False, True], ids=["old", "envelope"])
@pytest.mark.parametrize("name", RECORDS)
def test_an_incomplete_record_is_left_out_or_shown(tmp_path, name, has_envelope):
    for values in remove_each_part(RECORDS[name]):
        if has_envelope:
            values = in_envelope(KIND_OF_NAME.get(name, name), values)
        (tmp_path / "record.json").write_text(json.dumps(values), encoding="utf-8")
        make_page(collect([tmp_path]))
