"""Lone surrogates, which UTF-8 cannot represent, are replaced by U+FFFD: in strings, and as escapes in JSON files.

A string from a caller or from JSON ("\\ud800") may hold one. A pair of surrogate escapes in JSON is one character, and
stays.
"""

from __future__ import annotations

import logging
import re

from elmo.errors import DataError
from elmo.text.chars import SURROGATE

log = logging.getLogger(__name__)

# an escape of JSON: a pair of surrogates, a lone surrogate (the group), or another one
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)"
)


class SurrogateReplacer:
    """Replaces lone surrogates by U+FFFD and counts them, so that one call logs one warning."""

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict  # an error instead
        self.count = 0
        self.first = ""  # where the first one was

    def replace(self, text: str, where: str) -> str:
        """The text without lone surrogates; `where` names it in the warning or error."""
        if text.isascii() or not (match := SURROGATE.search(text)):
            return text
        if self.strict:
            raise DataError(
                f"{where} holds the lone surrogate U+{ord(match[0]):04X} at character {match.start()}.",
                'This is not valid text; decode the source as UTF-8, or allow a replacement with errors="replace".',
            )
        replaced, count = SURROGATE.subn("\ufffd", text)
        self._add(count, where)
        return replaced

    def replace_escapes(self, json_text: str, where: str) -> str:
        """JSON text without escapes of lone surrogates; strings that are parsed from it keep their lengths."""
        if "\\u" not in json_text:
            return json_text
        count = sum(match[1] is not None for match in _ESCAPE.finditer(json_text))
        if count == 0:
            return json_text
        self._add(count, where)
        return _ESCAPE.sub(lambda match: match[0] if match[1] is None else "\\ufffd", json_text)

    def warn(self) -> None:
        """Logs the count and the first place, if there was a replacement."""
        if self.count:
            log.warning("%d lone surrogates were replaced by U+FFFD, the first in %s.", self.count, self.first)

    def _add(self, count: int, where: str) -> None:
        self.count += count
        self.first = self.first or where
