"""The rules for any language by which `sentences` decides whether a full stop or another stop ends a sentence.

A stop (. ! ? …) ends a sentence if whitespace follows and the text after it does not begin with a small letter. A full
stop does not end one after an initial, a number up to 31 after a word (an ordinal: "am 3. Mai") or in a date
(21. 4. 1990), letters with stops (z.B., т.е.), also with spaces (z. B., m. in.), titles (dott., mevr., डॉ.) and a few
abbreviations that precede names and numbers in many languages. In Greek, a semicolon is a question mark. The stops of
other scripts (。！？ ؟ ۔ । ॥ ။ ။ ។ ։ ...) always end a sentence. Thai has no stop: a sentence ends
with its line.
"""

from __future__ import annotations

import re

from elmo.text.stop_context import OPENERS, is_label, word_before, words

_SOFT = r".!?\u2026\u203c\u2047-\u2049"
_HARD = (  # Unicode's Sentence_Terminal without _SOFT and \u203d, and the stops of Sinhala and Tibetan
    r"\u3002\uff01\uff0e\uff1f\uff61\ufe12\ufe15\ufe16\ufe52\ufe56\ufe57"  # Chinese, Japanese, small and vertical forms
    r"\u061d-\u061f\u06d4\u0700-\u0702\u0964\u0965\u0df4"  # Arabic, Urdu, Syriac, Hindi and other Indic, Sinhala
    r"\u104a\u104b\u17d4\u17d5\u1362\u1367\u1368\u0589\u1803\u1809\u0f0d\u0f0e"  # Burmese ... Tibetan
    r"\u07f9\u0837\u0839\u083d\u083e\u166e\u1735\u1736\u1944\u1945"  # N'Ko, Samaritan, Canadian, Philippine, Limbu
    r"\u1aa8-\u1aab\u1b4e\u1b4f\u1b5a\u1b5b\u1b5e\u1b5f\u1b7d-\u1b7f\u1c3b\u1c3c\u1c7e\u1c7f"  # Tai Tham ... Ol Chiki
    r"\u2cf9-\u2cfb\u2e2e\u2e3c\u2e53\u2e54\ua4ff\ua60e\ua60f\ua6f3\ua6f7"  # Coptic, medieval, Lisu, Vai, Bamum
    r"\ua876\ua877\ua8ce\ua8cf\ua92f\ua9c8\ua9c9\uaa5d-\uaa5f\uaaf0\uaaf1\uabeb"  # Phags-pa ... Meetei Mayek
    r"\U00010a56\U00010a57\U00010f55-\U00010f59\U00010f86-\U00010f89\U00011047\U00011048\U000110be-\U000110c1"
    r"\U00011141-\U00011143\U000111c5\U000111c6\U000111cd\U000111de\U000111df\U00011238\U00011239\U0001123b"
    r"\U0001123c\U000112a9\U0001144b\U0001144c\U000115c2\U000115c3\U000115c9-\U000115d7\U00011641\U00011642"
    r"\U0001173c-\U0001173e\U00011944\U00011946\U00011a42\U00011a43\U00011a9b\U00011a9c\U00011c41\U00011c42"
    r"\U00011ef7\U00011ef8\U00011f43\U00011f44\U00016a6e\U00016a6f\U00016af5\U00016b37\U00016b38\U00016b44"
    r"\U00016e98\U0001bc9f\U0001da88"
)
_CLOSERS = (  # quotes that open in one language and close in another are directly after the stop here
    r"[\"'\u2018\u2019\u201c\u201d\u00ab\u00bb\u2039\u203a)\]}*_\u300d\u300f\uff09\u3011\u300b\u3009\u2e29]*"
    r"(?:[ \u00a0\u202f]\u00bb(?!\w))?"  # French: oui. »
)
# The lookbehind lets the pattern match a run of stops only at its start; nothing after a run can fail: no backtracking.
STOP = re.compile(
    rf"(?<![{_SOFT}])(?P<soft>[{_SOFT}]+){_CLOSERS}"
    rf"|(?P<hard>[{_HARD}]+){_CLOSERS}"
    rf"|(?<=[\u0370-\u03ff\u1f00-\u1fff])(?P<greek>[;\u037e]){_CLOSERS}"
)
_ABBREVIATIONS = words(
    "Mr Mrs Ms Dr Drs Prof St Ste Sr Sra Srta Jr Hr Fr Nr No Mme Mlle MM Sig Dott Avv Ing Mgr Sen Rep Gov Gen Lt Col "
    "Capt Sgt Art art Abs Kap Bd Bl bl Vol vol pp p S s str Str č č.p tzv tj r stol mr dr prof v vs cf fig Fig Abb ca "
    "kl nr tel Tel o.s s.a d.h z.B u.a f.eks m.a.w t.ex t.o.m d.v.s н.э т.е т.д т.п св гр ул им рис стр тов "
    "проф акад ген им пл д кв млн млрд тыс "
)
# Titles and a few other abbreviations that precede names, by language. Those that are also words of another of these
# languages are left out: German sog., Italian on., Polish red., Portuguese dra., Slovene ga., Russian др. and род.
_TITLES = words(
    # Spanish, Portuguese, French
    "sr sra srta srs snr Sres Sras Srs Snr Dra Dras Lic Arq Exmo Exma Excmo Excma Ilmo Ilma Profa Eng Sta Av Mmes "
    "Mlles Pr "
    # Italian
    "sigg Sigg sig.ra Sig.ra sig.na Sig.na dott dott.ssa Dott.ssa prof.ssa Prof.ssa avv ing geom Geom mons Egr Spett "
    "cav Cav comm Comm Rev "
    # Dutch, German
    "dhr Dhr mevr Mevr mw Mw drs Ir jhr Jhr ds Ds mgr gebr Gebr bijv Frl Hrn Mag Mrd Mio engl "
    "bzw evtl ggf inkl vgl geb "
    # Danish, Norwegian, Swedish, Finnish; ks. is also Polish
    "hr frk Frk kgl Kgl kongl Kongl sct Sct skt Skt esim ks Ks "
    # Polish, Czech, Slovak
    "inż Inż św Św śp Śp Bp abp Abp kard kpt Kpt ppor mjr Mjr Adw ul pl np ang sv Sv MUDr JUDr PhDr RNDr PaedDr MVDr "
    "ThDr PharmDr Bc např napr překl tzw "
    # Slovene, Croatian, Serbian
    "inž Inž gdč Gdč gđa Gđa gđica Gđica pok Pok npr angl Št гђа Гђа гђица Гђица Др пок Пок "
    # Russian, Bulgarian, Ukrainian, Belarusian
    "Св Гр Тов Проф Акад Ген Рис Стр См инж Инж доц Доц арх Арх бул вул Вул ім напр ок рэж "
    # Romanian, Greek, Turkish
    "Dl dl Dna Sf sf Acad acad Conf conf Δρ δρ Καθ καθ κα Αγ αγ Doç Yrd Öğr Müh Uzm Ecz Sn Op bkz Bkz "
    # Hindi, Hebrew, Indonesian, Swahili, Vietnamese, Welsh, Irish
    "डॉ डा प्रो पं स्व कु मि פרופ הפרופ Tn Ny Bpk Sdr Hj KH Jl Jln Bw Bi Dkt Mh Mhe GS PGS TS ThS TP Tp Parch tUas"
)
# Abbreviations of several words that precede names, also with spaces: "m.in." and "m. in.". Those that mean "and so on"
# are left out, because they mostly end a sentence before a capital letter: t. d., o. s. v., m. m.
_PHRASES = words(
    # German; Dutch; Polish, Czech, Slovak
    "z.b d.h d.i u.a v.a o.g s.o s.u a.a i.d "
    "d.w.z o.a b.v t.z.v m.n m.a.w t.w i.p.v m.b.t t.b.v t.g.v t.a.v n.a.v i.v.m o.l.v z.g v.d "
    "m.in t.j t.zw t.zv t.zn ś.p c.k c.kr k.u.k "
    # Swedish, Danish, Norwegian, Finnish; Spanish, Portuguese, Italian, French; Irish, Welsh
    "t.ex f.eks f.ex bl.a s.k d.v.s f.d t.o.m fr.o.m m.a.o p.g.a t.s n.s p.ej p.ex p.es v.g v.gr m.sh h.y "
    # Slovene, Croatian, Serbian; Russian, Ukrainian, Bulgarian; Greek; Latin
    "n.pr n.p t.i т.ј т.зв н.пр т.е т.к т.н т.ч т.нар т.наз π.χ δ.η e.g i.e"
)
_PHRASE = re.compile(
    r"(?<![\w.])(?i:" + "|".join(phrase.replace(".", r"\.\s?") for phrase in sorted(_PHRASES)) + r")\Z"
)
_LETTER = r"[^\W\d_]"
_AFTER_LETTER_WITH_STOP = re.compile(rf"(?<!\w){_LETTER}\.\s\Z")
_GOES_ON = re.compile(rf"(?:{_LETTER}|Chr|Kr|Hr|Eks|Ex)\.")  # after a small letter: z. B., n. Chr., Danish f. Eks.
# Initials without case: Hebrew letters, and the names of Latin letters in Hindi. Some are also words (के, आई, पी)
# and a Hebrew letter may be a number (כיתה ג.), so only those beside another initial or after a title count.
_INITIAL = "(?:[א-ת]|ए|बी|सी|डी|ई|एफ|जी|एच|आई|जे|के|एल|एम|एन|ओ|पी|क्यू|आर|एस|टी|यू|वी|डब्ल्यू|एक्स|वाई|ज़ेड|जेड)"
_INITIAL_BEFORE_STOP = re.compile(rf"(?<![^\s(\[.]){_INITIAL}\Z")
_INITIAL_WITH_STOP = re.compile(rf"{_INITIAL}\.")
_SECOND_INITIAL = re.compile(rf"(?<![^\s(\[.])(?:{_INITIAL}|डॉ|डा|प्रो|पं|ה?פרופ)\.[^\S\n]?{_INITIAL}\Z")
_UNITS = words("g m l h t κ г м л т с")
_BEFORE_NUMBER = words("n nn nrs št br Br бр Бр чл pct alin pag pagg pág págs núm Núm σελ αρ αριθ Kl lch lgh")
# After a number these are units and years, and may end a sentence: "г. Иванов", but "в 1990 г."
_NOT_AFTER_NUMBER = words("г g κ د أ Hz см м")
_NUMBER = re.compile(r"\d[.\s]*\Z")
# am 3. Mai; (3. Mai; vom 3. - 5. Mai; but not: 7 - 4.
_BEFORE_ORDINAL = re.compile(rf"(?:{_LETTER}|[(\[\u201e]|\.\s?[-\u2013\u2014/])\s*\Z")
_GERMAN_MONTH = re.compile("Jan|Jän|Feb|Mär|Apr|Mai|Jun|Jul|Aug|Sep|Okt|Nov|Dez")  # Montag, 3. Mai
_DAY = re.compile(r"(?<!\d)(?:0?[1-9]|[12]\d|3[01])\.\s\Z")
_MONTH = re.compile(r"(?:0?[1-9]|1[0-2])\.(?!\d)")
_YEAR = re.compile(r"\d{4}(?!\d)")
_ITALIAN_BEFORE_SIG = re.compile(r"(?i:\b(?:il|al|del|dal|nel|sul|col|un|caro|egregio|gentile)|,)\s\Z")


def full_stop_ends_sentence(text: str, start: int, stop: int, following: str) -> bool:
    """Whether the full stop at `stop` ends a sentence that begins at `start`; `following` is the text after it."""
    word = word_before(text, start, stop)
    if word in _ABBREVIATIONS or is_label(text, start, stop) or _is_title(text, start, stop, word):
        return False
    if _is_in_phrase(text, start, stop, word, following):
        return False
    next_is_digit = following.lstrip(OPENERS)[:1].isdigit()
    if word in _BEFORE_NUMBER and next_is_digit:
        return False
    if len(word) == 1 and word.isalpha() and word.isupper():
        return False  # an initial
    if _is_one_of_several_initials(text, start, stop, following):
        return False
    if len(word) <= 2 and word.isdecimal() and int(word) <= 31:
        before = text[max(start, stop - len(word) - 8) : stop - len(word)]
        if next_is_digit:  # in a date: 5. 3. 1990
            return not (_MONTH.match(following) or _DAY.search(before) and _YEAR.match(following))
        after_weekday = before.rstrip().endswith(",") and _GERMAN_MONTH.match(following)
        return _BEFORE_ORDINAL.search(before) is None and not after_weekday
    return not ("." in word and word.replace(".", "").isalpha() and len(word.rpartition(".")[2]) == 1)


def _is_in_phrase(text: str, start: int, stop: int, word: str, following: str) -> bool:
    """Whether the stop belongs to an abbreviation of several words: z. B., d. h., EE. UU., av. J.-C."""
    before = text[max(start, stop - 15) : stop]
    if _PHRASE.search(before) or following.startswith("J.-C."):
        return True
    if len(word) == 2 and word.isupper() and word[0] == word[1]:
        return following[2:3] == "." and following[0] == following[1]
    before = before.removesuffix(word)
    if len(word) > 1 or not word.islower() or _AFTER_LETTER_WITH_STOP.search(before):
        return False
    return _GOES_ON.match(following) is not None and not (word in _UNITS and _NUMBER.search(before))


def _is_one_of_several_initials(text: str, start: int, stop: int, following: str) -> bool:
    """Whether the stop follows an initial beside another one or after a title, in Hebrew or Hindi: ה. נ. ביאליק."""
    before = text[max(start, stop - 15) : stop]
    if _INITIAL_BEFORE_STOP.search(before) is None:
        return False
    return _INITIAL_WITH_STOP.match(following) is not None or _SECOND_INITIAL.search(before) is not None


def _is_title(text: str, start: int, stop: int, word: str) -> bool:
    before = text[max(start, stop - len(word) - 10) : stop - len(word)]
    if before[-1:] in ("-", "/"):
        return False  # the end of a longer word: youtube-dl. mg/g.
    if word == "sig":  # Italian; in Danish, Norwegian and Swedish a pronoun
        return _ITALIAN_BEFORE_SIG.search(before) is not None
    return word in _TITLES or word in _NOT_AFTER_NUMBER and _NUMBER.search(before) is None
