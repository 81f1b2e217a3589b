"""The errors for users: each says what was seen, what was expected, and what to do.

`ElmoError` is the class to catch. The message is one line; `hint` says what to do next. The command line prints both
and exits with `exit_code` (1: the work failed; 2: the command or a setting is wrong).
"""

from __future__ import annotations


class ElmoError(Exception):
    """The base class of all errors that are meant for users."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


class ConfigError(ElmoError):
    """A setting is unknown, of the wrong type, out of range, or contradicts another."""

    exit_code = 2


class WeightsError(ElmoError):
    """A model file is missing, damaged, hostile, or does not match its options."""


class DataError(ElmoError):
    """A text or another input file cannot be read, or is not in the expected format."""


class OutputError(ElmoError):
    """A result cannot be written; no incomplete file is left under its final name."""


# The libraries that each extra of pyproject.toml installs. Hints name them instead of the extra, because they can be
# installed in every environment; the extra's own name needs a package index that has this package.
EXTRAS = {
    "zstd": "zstandard",
    "spacy": "spacy",
    "moses": "sacremoses",
    "parquet": "pyarrow",
    "track": "tensorboard",
    "serve": "fastapi uvicorn",
    "sklearn": "scikit-learn",
    "pandas": "pandas",
    "datasets": "datasets",
    "sentence-transformers": "sentence-transformers datasets accelerate",
    "huggingface": "huggingface_hub",
    "flair": "flair",
    "gensim": "gensim",
    "lightning": "lightning",
    "onnx": "onnx onnxruntime",
    "ray": "'ray[data]' pyarrow",  # quoted, because shells expand brackets
}


class MissingExtra(ElmoError):
    """An optional library is needed and not installed."""

    exit_code = 2

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} is needed for this and is not installed.", f"pip install {EXTRAS[extra]}")
        self.what = what
        self.extra = extra

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.what, self.extra)


def printable(text: str) -> str:
    """The text with lone surrogates, which no encoding can print, as escapes; names of files and JSON can have them."""
    return text.encode("utf-8", "backslashreplace").decode()
