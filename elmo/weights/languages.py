"""Names of languages: from a code or an English name to the ISO 639 codes of the catalogue."""

from __future__ import annotations

LANGUAGES = {  # ISO 639 code: English name
    "ar": "Arabic", "bg": "Bulgarian", "ca": "Catalan", "cs": "Czech", "cu": "Old Church Slavonic", "da": "Danish",
    "de": "German", "el": "Greek", "en": "English", "es": "Spanish", "et": "Estonian", "eu": "Basque", "fa": "Persian",
    "fi": "Finnish", "fr": "French", "ga": "Irish", "gl": "Galician", "grc": "Ancient Greek", "he": "Hebrew",
    "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian", "id": "Indonesian", "it": "Italian", "ja": "Japanese",
    "ko": "Korean", "la": "Latin", "lt": "Lithuanian", "lv": "Latvian", "nb": "Norwegian Bokmål", "nl": "Dutch",
    "nn": "Norwegian Nynorsk", "no": "Norwegian", "pl": "Polish", "protein": "Protein", "pt": "Portuguese",
    "ro": "Romanian", "ru": "Russian", "sk": "Slovak", "sl": "Slovenian", "sv": "Swedish", "tr": "Turkish",
    "ug": "Uyghur", "uk": "Ukrainian", "ur": "Urdu", "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip
_OTHER_NAMES = {
    "ger": "de", "deu": "de", "deutsch": "de", "eng": "en", "spa": "es", "español": "es", "fra": "fr", "français": "fr",
    "ita": "it", "italiano": "it", "por": "pt", "português": "pt", "rus": "ru", "jpn": "ja", "zho": "zh",
    "mandarin": "zh",
    "farsi": "fa", "slovene": "sl", "flemish": "nl", "bokmål": "nb", "bokmal": "nb", "nynorsk": "nn", "euskara": "eu",
}  # fmt: skip


def language_code(text: str) -> str | None:
    """The ISO 639 code of a language given by its code, with or without a region (pt-BR), or by its name; or None."""
    text = text.strip().lower().replace("_", "-")
    codes = {name.lower(): code for code, name in LANGUAGES.items()} | _OTHER_NAMES | {code: code for code in LANGUAGES}
    region_free = text.split("-")[0] if len(text) == 5 and text[2] == "-" else text
    return codes.get(text) or codes.get(region_free)


def language_codes(code: str) -> frozenset[str]:
    """The codes of models that fit a language: Norwegian also has models of its two written forms."""
    return frozenset({"no": ("no", "nb", "nn"), "nb": ("nb", "no"), "nn": ("nn", "no")}.get(code, (code,)))
