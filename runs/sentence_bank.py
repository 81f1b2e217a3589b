#!/usr/bin/env python3
"""Writes the sentence bank of the explorer: short sentences in which words with several senses occur.

    python runs/sentence_bank.py TEXTS --out elmo/serve/bank

TEXTS is a folder with the files of SOURCES, one paragraph per line. Sentences are chosen by a hash of their text, so
that the same input gives the same file. The output is sentences.txt.xz, one tokenised sentence per line, and
README.md, which names sources and licences.
"""

from __future__ import annotations

import argparse
import hashlib
import lzma
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from elmo.text.sentences import split_sentences
from elmo.text.tokenizer_function import make_tokenizer

SOURCES = {  # file: (what, licence, from); all of them permit redistribution of adapted text
    "enwiki2015.heldout": ("English Wikipedia, spring 2015", "CC BY-SA 3.0", "jason-feng/wikiVisual@1c0fac9"),
    "enwiki2018.heldout": ("English Wikipedia, early 2018", "CC BY-SA 3.0", "Vibhas-hs-edu/WikiTasks@52b1f16"),
    "novels100.heldout": ("English novels", "public domain", "computationalstylistics/100_english_novels@143e601"),
    "standardebooks_fiction": ("novels 1900-1965", "public domain in the USA, edition CC0", "Standard Ebooks"),
    "commonvoice_sentences": ("everyday sentences", "CC0", "common-voice/common-voice@bc2cc85"),
    "usgov_blogs": ("web pages of the US government", "public domain in the USA, CC0", "GSA/digitalgov.gov and others"),
    "openstax_textbooks": ("OpenStax textbooks (openstax.org), humanities and economics", "CC BY 4.0", "OpenStax"),
    "openstax_textbooks2": ("OpenStax textbooks (openstax.org), biology and law", "CC BY 4.0", "OpenStax"),
    "wikinews": ("Wikinews articles", "CC BY 2.5", "vanatteveldt/wikinews@3472541"),
}
# Words with senses that are far apart.
WORDS = """
    act bank bar bark base bass bat bear bill block board bolt bond bow branch bridge capital case cast cell charge
    check chest club coach cold column company contract cool country course court crane cross current date deck
    degree deposit draft draw drill drive duck fair fall fan figure file film fine fire firm fit flat fly force
    game general grave ground head interest iron issue jam judge key kind lap lead leaf leaves left letter lie light
    line live lock match mean mine minute mint model mole nail net note novel nut object operation order organ palm
    park party pass patient pitch plane plant plate play point pole pool port pound present press pupil race record
    rest right ring rock roll root rose row ruler saw scale seal season second sentence shed ship shot sign sink
    sound space spell spot spring square staff stage star state stick stock strike subject suit table tank tap tear
    tie tip tire train trip trunk volume watch wave well wind yard
"""
PER_WORD = 24  # sentences per word, fewer where the text has fewer
OTHERS = 500  # sentences without any of the words
MIN_TOKENS, MAX_TOKENS = 7, 19
MAX_BYTES = 300_000
_PLAIN = re.compile(r"[A-Z][A-Za-z0-9 ,.;:'’\-]*[.?!]\Z")
_OFFENSIVE = re.compile(
    r"\b(nigg|negro|squaw|savages?\b|darkies|jews?\b|jewish|gyps|rap(e|ed|ist|es)\b|sex|porn|nazi|hitler|whore|slut|"
    r"bastard|bitch|damn|hell\b|suicid|genocid|terroris|massacre|tortur|murder|kill|slave|corpse|naked)",
    re.I,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=Path, help="folder with the files of SOURCES, NAME.txt.xz")
    parser.add_argument("--out", type=Path, required=True, help="folder of the bank")
    options = parser.parse_args()
    chosen = choose([pair for name in SOURCES for pair in sentences_of(options.texts, name)])
    packed = lzma.compress("".join(f"{line}\n" for _, line in chosen).encode(), preset=9 | lzma.PRESET_EXTREME)
    if len(packed) > MAX_BYTES:
        raise SystemExit(f"The bank has {len(packed):,} bytes; expected at most {MAX_BYTES:,}. Lower PER_WORD.")
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "sentences.txt.xz").write_bytes(packed)
    (options.out / "README.md").write_text(describe(chosen), encoding="utf-8")
    print(
        f"{len(chosen):,} sentences, {sum(line.count(' ') + 1 for _, line in chosen):,} tokens, {len(packed):,} bytes"
    )


def sentences_of(folder: Path, source: str) -> Iterator[tuple[str, str]]:
    """(source, tokens joined by spaces) of each sentence that is plain English of the right length."""
    tokenize = make_tokenizer("default")
    with lzma.open(folder / f"{source}.txt.xz", "rt", encoding="utf-8") as paragraphs:
        for paragraph in paragraphs:
            for start, end in split_sentences(paragraph):
                text = paragraph[start:end]
                if _PLAIN.match(text) and not _OFFENSIVE.search(text):
                    tokens = [token.text for token in tokenize(text)]
                    if MIN_TOKENS <= len(tokens) <= MAX_TOKENS:
                        yield source, " ".join(tokens)


def choose(sentences: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The sentences of the bank: up to PER_WORD for every word, then some of the others, in the order of the text."""
    order = sorted(set(sentences), key=lambda pair: hashlib.sha256(pair[1].encode()).digest())
    wanted, counts = set(WORDS.split()), Counter[str]()
    chosen, others = set(), 0
    for source, line in order:
        present = wanted & set(line.split())
        if any(counts[word] < PER_WORD for word in present):
            counts.update(present)
            chosen.add((source, line))
        elif not present and others < OTHERS:
            others += 1
            chosen.add((source, line))
    by_line = {line: source for source, line in sentences if (source, line) in chosen}  # a sentence occurs once
    return [(source, line) for line, source in by_line.items()]


def describe(chosen: list[tuple[str, str]]) -> str:
    """The text of README.md."""
    counts = Counter(source for source, _ in chosen)
    rows = [
        f"| {what} | {counts[name]:,} | {licence} | {origin} |" for name, (what, licence, origin) in SOURCES.items()
    ]
    return "\n".join(
        [
            "# The sentence bank of the explorer",
            "",
            "<!-- written by runs/sentence_bank.py; not edited by hand -->",
            "",
            f"`sentences.txt.xz` has {len(chosen):,} English sentences, one per line, with tokens separated by spaces.",
            "Most of them were chosen because they contain a word with several senses.",
            "",
            "| source | sentences | licence | from |",
            "| --- | --: | --- | --- |",
            *rows,
            "",
            "The collection as a whole is under CC BY-SA 4.0, which the licence of the sentences from Wikipedia",
            "permits for adaptations: https://creativecommons.org/licenses/by-sa/4.0/. The authors of those sentences",
            "are the contributors of English Wikipedia, named in the histories of its articles. Changes: the text was",
            "split into sentences and tokenised.",
            "",
        ]
    )


if __name__ == "__main__":
    main()
