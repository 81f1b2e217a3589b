"""Names of languages: from a code, an English name or the language's own name to the ISO 639 codes of the catalogue."""

from __future__ import annotations

import unicodedata

LANGUAGES = {  # ISO 639 code: English name
    "ar": "Arabic", "bg": "Bulgarian", "ca": "Catalan", "cs": "Czech", "cu": "Old Church Slavonic", "cy": "Welsh",
    "da": "Danish", "de": "German", "el": "Greek", "en": "English", "es": "Spanish", "et": "Estonian", "eu": "Basque",
    "fa": "Persian",
    "fi": "Finnish", "fr": "French", "ga": "Irish", "gl": "Galician", "grc": "Ancient Greek", "he": "Hebrew",
    "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian", "id": "Indonesian", "it": "Italian", "ja": "Japanese",
    "ko": "Korean", "la": "Latin", "lt": "Lithuanian", "lv": "Latvian", "nb": "Norwegian Bokmål", "nl": "Dutch",
    "nn": "Norwegian Nynorsk", "no": "Norwegian", "pl": "Polish", "protein": "Protein", "pt": "Portuguese",
    "ro": "Romanian", "ru": "Russian", "sk": "Slovak", "sl": "Slovene", "sr": "Serbian", "sv": "Swedish",
    "sw": "Swahili", "tr": "Turkish",
    "ug": "Uyghur", "uk": "Ukrainian", "ur": "Urdu", "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip
_OTHER_NAMES = {  # own names, codes of three letters, and further English names
    "العربية": "ar", "български": "bg", "català": "ca", "čeština": "cs", "cymraeg": "cy", "dansk": "da",
    "deutsch": "de", "ger": "de", "deu": "de", "ελληνικά": "el", "eng": "en", "español": "es", "castellano": "es",
    "castilian": "es", "spa": "es", "eesti": "et", "euskara": "eu", "فارسی": "fa", "farsi": "fa", "suomi": "fi",
    "français": "fr", "fra": "fr", "gaeilge": "ga", "galego": "gl", "עברית": "he", "हिन्दी": "hi", "hrvatski": "hr",
    "magyar": "hu", "bahasa indonesia": "id", "italiano": "it", "ita": "it", "日本語": "ja", "jpn": "ja",
    "한국어": "ko", "latina": "la", "lietuvių": "lt", "latviešu": "lv", "bokmål": "nb", "bokmal": "nb",
    "nederlands": "nl",
    "flemish": "nl", "nynorsk": "nn", "norsk": "no", "polski": "pl", "português": "pt", "por": "pt", "română": "ro",
    "русский": "ru", "rus": "ru", "slovenčina": "sk", "slovenian": "sl", "slovenščina": "sl", "српски": "sr",
    "srpski": "sr", "svenska": "sv", "kiswahili": "sw", "türkçe": "tr", "українська": "uk", "اردو": "ur",
    "tiếng việt": "vi", "中文": "zh", "mandarin": "zh", "zho": "zh",
}  # fmt: skip


def language_code(text: str) -> str | None:
    """The ISO 639 code of a language given by its code, with or without a region (pt-BR), or by its name; or None."""
    text = unicodedata.normalize("NFC", text.strip().lower()).replace("_", "-")
    codes = {name.lower(): code for code, name in LANGUAGES.items()} | _OTHER_NAMES | {code: code for code in LANGUAGES}
    region_free = text.split("-")[0] if len(text) == 5 and text[2] == "-" else text
    return codes.get(text) or codes.get(region_free)


def language_codes(code: str) -> frozenset[str]:
    """The codes of models that fit a language: Norwegian also has models of its two written forms."""
    return frozenset({"no": ("no", "nb", "nn"), "nb": ("nb", "no"), "nn": ("nn", "no")}.get(code, (code,)))
