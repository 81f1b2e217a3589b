"""The tokenizer `unicode` and its rules for sentences: many languages and scripts, exact offsets, linear time."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from elmo.errors import ConfigError
from elmo.text.sentences import sentence_rules, split_sentences
from elmo.text.tokenize import tokenizer
from elmo.text.unicode_pattern import FORMAT

tokenize = tokenizer("unicode")

# raw sentence, tokens
SENTENCES = [
    ("L'uomo dell'arte, cos'è?", "L' uomo dell' arte , cos' è ?"),  # Italian
    ("un po' d’acqua", "un po' d’ acqua"),
    ("Aujourd'hui, qu'il n'y ait", "Aujourd'hui , qu' il n' y ait"),  # French
    ("c'est-à-dire l’homme", "c' est-à-dire l’ homme"),
    ("l'Hospitalet, dona'm col·lecció", "l' Hospitalet , dona 'm col·lecció"),  # Catalan
    ("It's what O'Neal didn't say.", "It 's what O'Neal didn 't say ."),  # English
    ("mae'n mynd i'r dre a'i gar", "mae 'n mynd i 'r dre a 'i gar"),  # Welsh
    ("Ankara'da, İstanbul'u", "Ankara'da , İstanbul'u"),  # Turkish
    ("п'ять м’ячів, т.е. да", "п'ять м’ячів , т.е. да"),  # Ukrainian, Russian
    ("z.B. am 3. mai ca. hundert, Vor- und Nachteile", "z.B. am 3. mai ca. hundert , Vor- und Nachteile"),
    ("EU:n ja kl. 12:30", "EU:n ja kl. 12:30"),  # Finnish
    ("1,000.50 3.14 1990-1995 covid-19 50%", "1,000.50 3.14 1990 - 1995 covid-19 50 %"),
    ("J. R. R. Tolkien schrieb.", "J. R. R. Tolkien schrieb ."),
    ("a@b.org, https://example.org/x?y=1. #tag @user", "a@b.org , https://example.org/x?y=1 . #tag @user"),
    ("यह ठीक है।", "यह ठीक है ।"),  # Hindi, danda
    ("नहीं॥", "नहीं ॥"),
    ("هل أنت بخير؟ نعم، شكرا؛", "هل أنت بخير ؟ نعم ، شكرا ؛"),  # Arabic
    ("می\u200cخواهم «بروم».", "می\u200cخواهم « بروم » ."),  # Persian, zero width non-joiner
    ("١٬٠٠٠٫٥ ریال", "١٬٠٠٠٫٥ ریال"),
    ('צה"ל אמר: ג׳ירפה', 'צה"ל אמר : ג׳ירפה'),  # Hebrew
    ("今日は、元気。", "今 日 は 、 元 気 。"),  # Japanese
    ("コーヒーを飲むTシャツ", "コーヒー を 飲 む Tシャツ"),
    ("「你好！」（是）", "「 你 好 ！ 」 （ 是 ）"),  # Chinese
    ("나는 학교에 간다.", "나는 학교에 간다 ."),  # Korean
    ("ไทยเกินไป", "ไท ย เกิ น ไป"),  # Thai
    ("ភាសាខ្មែរ។", "ភា សា ខ្មែ រ ។"),  # Khmer, with a consonant below another
    ("snake_case ... -- !!", "snake_case ... -- !!"),
    ("👩‍💻 👍🏽ok 🇫🇷🇩🇪", "👩‍💻 👍🏽 ok 🇫🇷 🇩🇪"),
]


@pytest.mark.parametrize(("raw", "expected"), SENTENCES)
def test_unicode_splits_sentences_of_many_languages(raw: str, expected: str) -> None:
    assert [token.text for token in tokenize(raw)] == expected.split(" ")


@pytest.mark.parametrize(("raw", "expected"), SENTENCES)
def test_unicode_does_not_change_tokenised_text(raw: str, expected: str) -> None:
    assert [token.text for token in tokenize(expected)] == expected.split(" ")


def test_marks_of_direction_and_zero_width_spaces_separate_tokens_and_belong_to_none() -> None:
    text = "\ufeffa\u200bb \u200fשלום\u200f."
    assert [token.text for token in tokenize(text)] == ["a", "b", "שלום", "."]
    assert tokenize("\u200b \u2066") == []


def test_composed_and_decomposed_words_stay_whole() -> None:
    assert [token.text for token in tokenize("ete\u0301s été co\u00adop")] == ["ete\u0301s", "été", "co\u00adop"]


PIECES = [
    *"aOsdlItZ15éàяאابिक今はカไเ.,-'’\"`_$/#@:; \n\u0301\u200d\u200c\u200b\u200f👍\ud800।؟。",
    "l'", "qu'", "z.B.", "http://", "a@b", "a@b.c", "'s", "ca. ", "1. a", "ខ្មែ", "...",
]  # fmt: skip
ANY_TEXT = st.text(st.characters(codec=None), max_size=60) | st.lists(st.sampled_from(PIECES), max_size=30).map("".join)
SEPARATOR = re.compile(rf"[\s{FORMAT}]*")


@given(ANY_TEXT)
@example("\x1c\x85 \u2029")
@example("l'l'l' 's's a@a@")
def test_unicode_offsets_are_exact_and_cover_every_visible_character(text: str) -> None:
    end = 0
    for token in tokenize(text):
        assert text[token.start : token.end] == token.text
        assert token.start < token.end
        assert SEPARATOR.fullmatch(text, end, token.start)
        assert not re.search(rf"[\s]|^[{FORMAT}]", token.text)
        end = token.end
    assert SEPARATOR.fullmatch(text, end)


@pytest.mark.parametrize(
    "piece",
    ["a", ".", "'", "-", " ", "l'", "a'", "a.", "a-", "a+", "a@", "@", "1,", "http://", "http://.", "今", "ไ", "ខ្"]
    + ["'s", "a.b@", "\u0301", "\u200d", "\u200b", "ca. ", "#a", "_", "a_"],
)
def test_unicode_takes_linear_time(piece: str) -> None:
    text = "x" + piece * (250_000 // len(piece)) + "!"
    start = time.process_time()
    tokenize(text)
    assert time.process_time() - start < 3  # about 0.3; a quadratic algorithm takes minutes


def pieces(text: str) -> list[str]:
    return [text[start:end] for start, end in split_sentences(text, "unicode")]


@pytest.mark.parametrize(
    "sentences",
    [
        ["Es war am 3. Mai.", "Dann kam Dr. Weiß, z.B. Montag."],
        ["Il a dit « oui. »", "Où est-il ?", "Là."],
        ["Er sagte: „Ja.“", "»Nein.«", "Gut."],
        ["यह है।", "ठीक है॥", "हाँ"],
        ["هل أنت بخير؟", "نعم."],
        ["今日は。", "元気ですか？", "「はい。」", "終わり！"],
        ["Τι κάνεις;", "Καλά."],
        ["ይህ ነው።", "አዎ።"],
        ["ဟုတ်တယ်။", "မဟုတ်ဘူး။"],
        ["Пушкин А. С. жил там.", "Да."],
        ["Het werd 7 - 4.", "Nederland won."],
        ["שלום עולם.", "מה שלומך?"],
    ],
)
def test_unicode_rules_split_sentences_of_many_languages(sentences: list[str]) -> None:
    assert pieces(" ".join(sentences)) == sentences


@pytest.mark.parametrize(
    "sentence",
    [
        "Il sig. Rossi parla.", "Grazie, sig. Rossi.", "La sig.ra Bianchi e il dott. Verdi.", "L'avv. Rossi è qui.",
        "Il dott. Bianchi è qui.", "Si veda l'emendamento n. 2 e la pag. 91.",
        "Dhr. Jansen komt.", "Mevr. Jansen komt.", "De vragen nrs. 43 tot 74 van mevr. Holst.",
        "डॉ. शर्मा यहाँ हैं।", "Ο κ. Παπαδόπουλος ήρθε.", "Την ημέρα του Αγ. Βαλεντίνου.", "د. أحمد هنا.",
        "Это г. Иванов.", "Он живёт в г. Москве.", "Реч је о г. Петровићу и Св. Сави.",
        "Dl. Popescu a venit.", "La Sf. Gheorghe.", "Pan inż. Kowalski przyszedł.", "Zawołał św. Marka i ks. Szymona.",
        "Pisal je g. Novakom.", "V cerkvi sv. Marka.", "Sayın Av. Mayor geldi.", "O sr. João e a Sta. Maria.",
        "Hun saa paa Frk. Halvorsen og hr. Olsen.", "Es sind 5 Mrd. Euro.", "Perguntou: «snr. Carlos».",
        "שמו של הפרופ. ויצמן.", "Ada Tn. Sato.", "Alimwona Bw. Juma.", "Y Parch. Jones oedd yno.",
        "Eine Kultur- bzw. Naturgabe und evtl. Wein, ggf. Bier, inkl. Brot.", "Das ist (vgl. Goethe) von Hrn. Weiß.",
        "Frau Anna Weiß, geb. Müller, kam.", "Mieszka w tzw. Krainie.", "Den svobody (pozn. překl. Freedom Day).",
        "Фільм «Дом» (рэж. Іван Шульга).",
    ],
)  # fmt: skip
def test_unicode_rules_do_not_split_after_titles(sentence: str) -> None:
    assert pieces(sentence) == [sentence]


@pytest.mark.parametrize(
    "sentences",
    [
        ["Он родился в 1990 г.", "Он умер в 2001 г.", "Брат жив."],
        ["То је било 2007. г.", "Онда је отишао."],
        ["Det vejer 5 g.", "Så er det nok."],
        ["Der er 50 Hz.", "Det er alt."],
        ["Рост 180 см.", "Вес другой."],
        ["Han satte sig.", "Hun gik."],  # the Scandinavian pronoun
        ["»Hon reste sig.»", "»Ja.»"],
        ["Han sa det se'n.", "Sedan gick han."],
        ["Das Programm heißt youtube-dl.", "Es ist gut."],
        ["Er nahm die Pfeife und sog.", "Dann ging er."],
        ["Vidio sam ga.", "Onda je otišao."],
        ["Voy a ir.", "Luego vuelvo."],
        ["To on.", "Potem poszedł."],
    ],
)
def test_unicode_rules_split_after_words_that_are_titles_elsewhere(sentences: list[str]) -> None:
    assert pieces(" ".join(sentences)) == sentences


@pytest.mark.parametrize(
    "sentence",
    [
        "Er mag Obst, z. B. Äpfel.", "Obst, z.\u202fB. Äpfel.", "Obst, z.\u00a0B. Äpfel.", "Heute, d. h. Montag.",
        "Es gab u. a. Wein.", "D. h. Peter kommt.", "Sie ist i. d. R. Ärztin.", "Im Jahr 44 n. Chr. geboren.",
        "Byli tam m. in. Kowalski i Nowak.", "M.in. Kraków i t. zw. Nowa Huta.", "A my dva, t. j. Dolanský a já.",
        "Heer Judocus v. d. Vlugt, t. z. v. Amsterdam, d. w. z. Holland.",
        "Hun var f. eks. Oslos første.", "Som f. Eks. Sauls Besøg.",
        "Hon bor i t. ex. Stockholm, d. v. s. Sverige.", "Viven en p. ej. Madrid.", "Viven en EE. UU. desde 2000.",
        "En 44 a. C. murió César.", "Au IIe siècle av. J.-C. et après.",
        "Άλλες πόλεις, π. χ. Αθήνα.", "Στον 5ο αιώνα π. Χ. ζούσε.",
        "Приехали друзья, т. е. Иван и Пётр.", "Градови, н. пр. Брибир и т. зв. Книн.", "T. i. Novakov sin.",
    ],
)  # fmt: skip
def test_unicode_rules_do_not_split_in_abbreviations_with_spaces(sentence: str) -> None:
    assert pieces(sentence) == [sentence]


@pytest.mark.parametrize(
    "sentences",
    [
        ["Han köpte bord, skrin m. m.", "Han skulle resa."],  # "and so on", before a capital letter
        ["Der kom talgoxar m. fl.", "De var röda."],
        ["Cyrkiel, linia i t. d.", "Wszystko leżało."],
        ["Он умер в 1990 г.", "А. Смирнов жив."],
        ["Det väger 5 g.", "A. Larsson sade det."],
        ["Llegó a las 3 p. m.", "Luego salió."],
        ["Vivió en EE. UU.", "Después volvió."],
    ],
)
def test_unicode_rules_split_after_abbreviations_that_end_sentences(sentences: list[str]) -> None:
    assert pieces(" ".join(sentences)) == sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["Er starb (5. Mai 1945) in Wien.", "Am Montag, 5. Mai, kam sie."],
        ["BEIRUT, 5. Juli (AP).", "Es gab die 3./4. Auflage."],
        ["Es war vom 3. – 5. Mai.", "Dann ging er."],
        ["Narodil se 21. 4. 1990 v Praze.", "Zemřel 30. 11. 2001."],  # Czech
        ["Od 3. 9. do 18. 9. 2001.", "Naprej."],  # Slovene
        ["Er nannte 3, 4, 5.", "Dann ging er."],
        ["Der Preis stieg auf € 5.", "Mai und Juni waren ruhig."],
        ["Foi na sexta, 20.", "Depois voltou."],
        ["Strana 5.", "2 muži přišli."],
        ["Strana 5.", "1990 bylo dobře."],
    ],
)
def test_unicode_rules_do_not_split_in_dates(sentences: list[str]) -> None:
    assert pieces(" ".join(sentences)) == sentences


@pytest.mark.parametrize(
    "sentence",
    [
        "Er sagte: „Dr. Weiß ist da.“", "Es hieß ‚Prof. Weiß‘.", "Powiedział: „prof. Nowak”.", "¿Sr. García?",
        "¡Sra. Pérez!", "Das sagte „J. Weiß“.", "Das Lied „5. Mai“ ist alt.", "—Sr. García, ¿viene?",
        "Vom 3.–5. Mai war er dort.", "Vom 3.—5. Mai war er dort.",
    ],
)  # fmt: skip
def test_an_abbreviation_or_ordinal_may_follow_an_opening_quotation_mark_or_a_dash(sentence: str) -> None:
    assert pieces(sentence) == [sentence]


@pytest.mark.parametrize(
    "sentences",
    [
        ["המשורר ה. נ. ביאליק גר שם.", "הוא כתב."],
        ["הספר (א. ד. גורדון) יצא.", "הפרופ. י. לוי היה שם."],
        ["ראשית שנת תרכ״ג.", "הוא בא."],  # the last letter of a number, not an initial
        ["ראשית שנת תרכ”ג.", "הוא בא."],
        ["הוא בכיתה ג.", "היא לא."],
        ["डॉ. ए. पी. जे. अब्दुल कलाम आए.", "वे चले गए."],
        ["प्रधानमंत्री के. पी. शर्मा ओली आए।", "वे गए।"],
        ["के.एल. राहुल खेला.", "वह आई.", "फिर गई."],  # आई is a letter and "came"
        ["उसने चाय पी.", "वह गया."],
    ],
)
def test_several_initials_in_scripts_without_capital_letters(sentences: list[str]) -> None:
    assert pieces(" ".join(sentences)) == sentences


@pytest.mark.parametrize("sentences", [["Es steht auf S. 3–5.", "Dann kam er."], ["Alles von A–Z.", "Dann kam er."]])
def test_a_range_ends_a_sentence(sentences: list[str]) -> None:
    assert pieces(" ".join(sentences)) == sentences


def test_abbreviations_with_spaces_in_text_without_capital_letters() -> None:
    assert pieces("er mag obst, z. b. äpfel. dann ging er, d. h. heute.") == [
        "er mag obst, z. b. äpfel.",
        "dann ging er, d. h. heute.",
    ]


@pytest.mark.parametrize(
    "stop",
    [
        *("\u07f9", "\ua60e", "\ua60f", "\ua6f3", "\ua6f7"),  # N'Ko, Vai, Bamum
        *("\uaa5d", "\uaaf0", "\uaaf1", "\uabeb", "\u166e", "\ua8ce"),  # Cham, Meetei Mayek, Canadian, Saurashtra
        *("\ufe52", "\ufe56", "\ufe57", "\uff0e", "\uff1f", "\ufe12"),  # small, fullwidth and vertical forms
        *(
            "\U00011047",
            "\U00011141",
            "\U000111c5",
            "\U00011944",
            "\U00016e98",
        ),  # Brahmi, Chakma, Sharada ... Medefaidrin
    ],
)
def test_stops_of_rare_scripts_end_sentences(stop: str) -> None:
    assert pieces(f"ߊߋ ߌߍ{stop} ꔀꔁ{stop}") == [f"ߊߋ ߌߍ{stop}", f"ꔀꔁ{stop}"]


@given(ANY_TEXT)
def test_spans_of_the_unicode_rules_cover_all_but_whitespace(text: str) -> None:
    end = 0
    for span in split_sentences(text, "unicode"):
        assert span.start < span.end
        assert text[span.start : span.end].strip() == text[span.start : span.end]
        assert not text[end : span.start].strip()
        end = span.end
    assert not text[end:].strip()


def test_the_tokenizer_chooses_the_rules_for_sentences() -> None:
    assert {sentence_rules(name) for name in ("unicode", "moses:de", "spacy:xx")} == {"unicode"}
    assert {sentence_rules(name) for name in ("default", "whitespace", "moses:en", "spacy:en")} == {"english"}
    with pytest.raises(ConfigError, match="latin"):
        split_sentences("a", "latin")
