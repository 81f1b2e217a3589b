"""The report from hand-made records of every kind: what is found, what is said of it, and that the page is sound."""

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
from elmo.report.build import make_page, measure, write_page
from elmo.report.collect import Evidence, Found, collect
from elmo.report.findings import patterns
from elmo.report.html import PAPER_ADDRESS, as_html
from elmo.report.markdown import as_markdown
from elmo.report.page import Missing, short, short_command
from elmo.report.stylesheet import GROUNDS, MOODS, style_sheet
from elmo.report.table1 import make_table
from elmo.report.table1_chart import as_svg
from elmo.report.table1_formats import as_values

VOID = {"meta", "link", "img", "br", "hr", "input", "path", "rect", "circle", "line", "polyline", "polygon"}
SECTIONS = (
    "findings", "six-tasks", "layers", "places", "neighbours", "senses", "tags", "efficiency", "mixes", "contexts",
    "language-model",
)  # fmt: skip


class Checker(HTMLParser):
    """Opens and closes tags as a strict reader, and gathers ids, links and sources."""

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


def page_of(evidence: Evidence, **more):
    rows = make_table(evidence.tasks)
    return make_page(evidence, table=as_values(rows), table_picture=as_svg(rows) if rows else "", **more)


def checked(html: str) -> Checker:
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


def test_every_kind_of_record_is_found(tmp_path):
    evidence = collect([write_all(tmp_path)])
    assert len(evidence.tasks) == len(full_set())
    assert [f.values["probe"] for f in evidence.probes] == ["ner", "pos", "similarity", "wic", "wsd"]
    kinds = (evidence.trainings, evidence.finetunings, evidence.demos, evidence.neighbours, evidence.geometries)
    assert list(map(len, kinds)) == [1, 1, 1, 1, 1]
    assert len(evidence.perplexities) == 1
    assert len(next(iter(evidence.courses.values()))) == 2
    assert len(evidence) == len(full_set()) + 11
    assert evidence.unread == []
    assert all(f.path.startswith(f"{tmp_path.name}/") for f in evidence.probes), "paths begin at the named folder"


def test_broken_files_are_named_and_strange_ones_left_alone(tmp_path):
    (tmp_path / "cut.json").write_text('{"format": "elmo-ta', encoding="utf-8")
    (tmp_path / "other.json").write_text('{"name": "x"}', encoding="utf-8")
    (tmp_path / "list.json").write_text("[1, 2]", encoding="utf-8")
    evidence = collect([tmp_path, tmp_path / "other.json"])
    assert len(evidence) == 0
    assert [line.split(":")[0] for line in evidence.unread] == [f"{tmp_path.name}/cut.json"]
    with pytest.raises(DataError, match="does not exist"):
        collect([tmp_path / "nowhere"])


def test_the_page_is_sound_and_holds_everything(tmp_path):
    page, _ = page_of(collect([write_all(tmp_path)]))
    html = as_html(page)
    checker = checked(html)
    assert all(key in checker.ids for key in SECTIONS)
    tags = [tag for tag, _ in checker.tags]
    for landmark in ("header", "nav", "main", "footer", "h1"):
        assert tags.count(landmark) == 1
    tables, captions = tags.count("table"), tags.count("caption")
    assert tables == captions >= 14
    assert all(values.get("scope") in ("col", "row") for tag, values in checker.tags if tag == "th")
    assert all(values.get("alt") for tag, values in checker.tags if tag == "img")
    # table 1, two curves, mixes, a course, words in context, senses, tags, geometry
    assert tags.count("figure") == tags.count("figcaption") == 9
    svgs = [values for tag, values in checker.tags if tag == "svg"]
    assert all(set(values["aria-labelledby"].split()) <= set(checker.ids) for values in svgs)
    assert not any(isinstance(part, Missing) for section in page.sections for part in section.parts)
    assert "/home/me" not in html, "paths of a machine stay on it"
    assert "&lt;lent&gt; &amp; lent" in html


def test_every_figure_of_ours_leads_to_its_command(tmp_path):
    page, _ = page_of(collect([write_all(tmp_path)]))
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


def test_without_records_every_section_says_what_fills_it():
    page, found = page_of(Evidence())
    checked(as_html(page))
    missing = {s.key: [part.command for part in s.parts if isinstance(part, Missing)] for s in page.sections}
    assert missing.pop("findings") == []
    assert all(missing.values()), missing
    assert all(one.holds is None for one in found)
    assert all(line.startswith("elmo ") for commands in missing.values() for c in commands for line in c.splitlines())


def test_findings_are_held_against_the_records(tmp_path):
    found = {one.key: one.holds for one in patterns(measured(collect([write_all(tmp_path)])))}
    assert found == {
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


def measured(evidence: Evidence):
    return measure(evidence, as_values(make_table(evidence.tasks)))


def findings_of(*tasks, probes=()):
    return {one.key: one for one in patterns(measured(Evidence(tasks=list(tasks), probes=list(probes))))}


def test_a_difference_that_chance_makes_is_not_told_apart():
    records = [task_record(seed=s, elmo=e, test=60 + 4 * s + e) for s in (0, 1) for e in (False, True)]
    gain = findings_of(*records)["elmo-helps"]
    assert (gain.holds, gain.here) == (0, "NER +1.00")
    untrained = Found("p", probe_record("pos", trained=False, low=10, high=20))
    assert findings_of(probes=[untrained])["tags-lower"].holds is None
    upside_down = Found("p", probe_record("pos", low=10, high=20))
    assert findings_of(probes=[upside_down])["tags-lower"].holds == -1


def test_a_task_with_one_seed_is_held_to_the_deviation_of_the_others():
    alone = [task_record("squad", elmo=e, test=60 + 6 * e) for e in (False, True)]
    gain = findings_of(*alone)["elmo-helps"]
    assert (gain.holds, gain.here) == (0, "SQuAD +6.00 (one seed)")
    others = [task_record(seed=s, elmo=e, test=60 + s + 9 * e) for s in (0, 1) for e in (False, True)]
    gain = findings_of(*alone, *others)["elmo-helps"]  # 0.71 over seeds: 4.30 * 0.71 * sqrt(2) = 4.3
    assert (gain.holds, gain.cases) == (1, (2, 2))


def test_updates_are_saved_where_every_seed_saves_them():
    def runs(seed: int, reached: int):
        curve = [(10, 50.0), (40, 60.0)]
        with_elmo = [(reached, 60.0), (90, 61.0)]
        return [task_record(elmo=False, seed=seed, updates=curve), task_record(seed=seed, updates=with_elmo)]

    every, some, none = ([*runs(0, 10), *runs(1, second)] for second in (20, 80, 80))
    assert (findings_of(*every)["updates"].holds, findings_of(*every)["updates"].here) == (1, "NER 62% fewer")
    assert findings_of(*some)["updates"].holds == 0
    assert findings_of(*some)["updates"].here == "NER -12% fewer (1 of 2 seeds sooner)"
    assert findings_of(*none[2:])["updates"].holds == -1


def test_a_probes_difference_must_be_larger_than_twice_its_standard_error():
    record = probe_record("wsd", low=64.0, high=64.8)
    # of the difference: 100 * sqrt(2 * 0.64 * 0.36 / n): 0.68 of 10,000 targets, 0.21 of 100,000
    for count, holds in ((10_000, 0), (100_000, 1)):
        record["counts"] = {"targets": count}
        assert findings_of(probes=[Found("p", record)])["senses-upper"].holds == holds


def test_notes_explain_and_unknown_ones_are_refused(tmp_path):
    evidence = collect([write_all(tmp_path)])
    page, _ = page_of(evidence, notes={"places": "SNLI is short here."})
    assert "✗ otherwise than in the paper</span>: SNLI is short here." in as_html(page)
    assert "✗ otherwise than in the paper: SNLI is short here." in as_markdown(page)
    assert "✗ otherwise than in the paper, 0 of 4 as there; open" in as_html(page)
    page, _ = page_of(evidence, notes={"neighbours": "Sentences of <Wikipedia>."})
    assert "<p>Sentences of &lt;Wikipedia&gt;.</p>" in as_html(page)
    with pytest.raises(ConfigError, match="'place'"):
        page_of(evidence, notes={"place": "?"})


def test_files_are_written_and_markdown_shows_its_pictures(tmp_path):
    page, _ = page_of(collect([write_all(tmp_path / "runs")]))
    files = write_page(page, tmp_path / "out" / "report")
    names = {file.name for file in files}
    text = (tmp_path / "out" / "report" / "README.md").read_text(encoding="utf-8")
    assert text == as_markdown(page)
    shown = set(re.findall(r"\]\(([\w-]+\.svg)\)", text))
    assert shown == {name for name in names if name.endswith(".svg")}
    anchors = set(re.findall(r'<a id="([\w-]+)">', text))
    assert set(re.findall(r"\]\(#([\w-]+)\)", text)) <= anchors
    for line in text.splitlines():
        assert not line.startswith("```") or line in ("```sh", "```"), "nothing here is run by readers of docs"
    widths = [len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines() if line.startswith("|")]
    assert min(widths) >= 3
    assert write_page(page, tmp_path / "out" / "report") == files, "a second time it is written over"


def test_text_can_be_read_on_every_ground_by_day_and_night():
    for side in (0, 1):
        grounds = [COLORS["ground"][side], *(pair[side] for pair in GROUNDS.values())]
        texts = {name: COLORS[name] for name in ("ink", "faint", "first", "second")} | MOODS
        for name, pair in texts.items():
            for ground in grounds:
                assert contrast(pair[side], ground) >= 4.5, (name, ground)
    assert style_sheet().count("{") == style_sheet().count("}")


def test_paths_of_a_machine_are_cut():
    assert short({"a": ["/x/y/z.txt", "plain/path", 3], "b": {"c": "C:\\Users\\me\\f.txt"}}) == {
        "a": ["y/z.txt", "plain/path", 3],
        "b": {"c": "me/f.txt"},
    }
    assert short_command("elmo task train ner --set data.train='/a b/c d/e.txt' --out /q") == (
        "elmo task train ner --set 'data.train=c d/e.txt' --out q"
    )
    json.dumps(short(task_record()))


def without_each(values):
    """The same record without one of its parts, for every part however deep."""
    for key in values if isinstance(values, dict) else range(len(values)) if isinstance(values, list) else ():
        items = {k: v for k, v in values.items() if k != key} if isinstance(values, dict) else None
        yield items if items is not None else values[:key] + values[key + 1 :]
        for less in without_each(values[key]):
            whole = dict(values) if isinstance(values, dict) else list(values)
            whole[key] = less
            yield whole


@pytest.mark.parametrize(
    "record",
    [task_record(), *(probe_record(kind) for kind in ("pos", "wsd", "wic", "similarity")), training_report(), FINETUNED,
     PERPLEXITY, DEMO, SIMILAR, GEOMETRY],
    ids=["task", "pos", "wsd", "wic", "similarity", "training", "finetuning", "perplexity", "demo", "similar",
         "geometry"],
)  # fmt: skip
def test_a_record_that_lacks_something_is_left_out_or_shown(tmp_path, record):
    for less in without_each(record):
        (tmp_path / "record.json").write_text(json.dumps(less), encoding="utf-8")
        evidence = collect([tmp_path])
        make_page(evidence, table=as_values(make_table(evidence.tasks)))
