"""Hints of errors on the command line: a sentence that names a flag is shown only if the command has that flag.

Library code is used by many commands and suggests the flags of some of them ("Choose another name. --overwrite replaces
it."). A sentence that names the command of its flags ("run elmo embed with --resume") is always shown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")
_COMMAND = re.compile(r"\belmo ((?:[a-z]+)(?: [a-z]+)?)")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"'-])")
EVERYWHERE = frozenset({"--help", "--debug", "--version"})  # flags that all commands have


def usable_hint(hint: str, group: Any, words: Sequence[str]) -> str:
    """The sentences of a hint that the command line `words` can follow; `group` holds all commands."""
    flags = flags_of(group, words)
    lines = []
    for line in hint.split("\n"):
        sentences = [s for s in _SENTENCE_END.split(line) if not missing_flags(s, flags, group)]
        if sentences or not line:
            lines.append(" ".join(sentences))
    return "\n".join(lines)


def explain_argument_flag(error: Any) -> None:
    """Extends typer's error of an unknown option if it is the name of an argument, as in `elmo info --model M`."""
    flag, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    if flag is None or context is None:
        return
    arguments = {parameter.name for parameter in context.command.params if parameter.param_type_name == "argument"}
    name = flag.lstrip("-").replace("-", "_")
    if name in arguments:
        error.possibilities = None
        error.message = f"No such option: {flag}. Here the {name} is given without a flag, as in the usage above."


def explain_extra_arguments(error: Any) -> None:
    """Extends typer's error of too many arguments, which is usually a pattern of files that the shell has expanded."""
    message, context = getattr(error, "message", ""), getattr(error, "ctx", None)
    if context is not None and message.startswith("Got unexpected extra argument") and context.info_name == "embed":
        error.message = f"{message}. Quote a pattern of files, so that the shell does not expand it: 'corpus/*' out/"


def missing_flags(sentence: str, flags: frozenset[str], group: Any) -> set[str]:
    """The flags that a sentence names and neither `flags` has nor a command that the sentence names."""
    named = frozenset[str]().union(*(flags_of(group, match[1].split()) for match in _COMMAND.finditer(sentence)))
    return set(_FLAG.findall(sentence)) - flags - named - EVERYWHERE


def flags_of(group: Any, words: Sequence[str]) -> frozenset[str]:
    """The flags of the command that the words begin with, such as `task train ner --seed 1`; empty if there is none."""
    command = group
    for word in words:
        if word.startswith("-") or not hasattr(command, "list_commands"):
            break
        if word not in command.list_commands(None):
            break
        command = command.get_command(None, word)
    if command is group:
        return frozenset()
    return frozenset(flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts))
