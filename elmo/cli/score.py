"""`elmo score`: log-probabilities of sentences and words, and likely substitutes for each word."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from elmo.cli.options import Device, Encoding, InvalidBytes, Tokenizer, check_invalid_bytes, warn_of_file_names
from elmo.errors import ConfigError

log = logging.getLogger(__name__)

EXAMPLE = 'elmo score "The cat sat on the mat ." --model my-model/ --substitutes 5'
_LONG_ADVICE = "Put one sentence on each line."


def run(
    text: Annotated[
        str | None, typer.Argument(help="One sentence; - reads one sentence per line from stdin. Default: -.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="Read sentences from this file instead, one sentence per line.")
    ] = None,
    model: Annotated[str, typer.Option(help="Name, folder or file of a model that has a softmax.")] = "default",
    tokenizer: Tokenizer = None,
    encoding: Encoding = "utf-8",
    errors: InvalidBytes = "strict",
    tokens: Annotated[bool, typer.Option("--tokens", help="Print the log-probabilities of every word.")] = False,
    substitutes: Annotated[
        int, typer.Option(min=0, help="Number of words to print that fit best at each position, best first.")
    ] = 0,
    state: Annotated[str, typer.Option(help="LSTM state at the start of a sentence: reset, warm or carry.")] = "reset",
    device: Device = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per sentence.")] = False,
) -> None:
    """Print log-probabilities of sentences and words under a model's softmax, forward and backward."""
    import elmo
    from elmo.embed.dump.input_text import long_line_warning
    from elmo.embed.lm import LanguageModel
    from elmo.text.inputs import decomposed_warning
    from elmo.text.lines import read_lines

    if text is not None and file is not None:
        raise ConfigError(f"There are two inputs: the text {text[:40]!r} and --file {file}.", "Give one of them.")
    how = check_invalid_bytes(errors)
    if substitutes and state == "carry":
        raise ConfigError(
            "--substitutes cannot be combined with --state carry: every sentence would be read twice.",
            "Use --state reset.",
        )
    texts = None if text is None or text == "-" else [text]
    warn_of_file_names(texts or [])
    lm = LanguageModel(elmo.load(model, tokenizer=tokenizer, state=state, device=device))
    lines = read_lines(file or "-", encoding=encoding, errors=how) if texts is None else iter(texts)
    sentences = ([token.text for token in lm.embedder.tokenize(line)] for line in lines)
    checks: list[Callable[[Sequence[str], int], str | None]] = [
        lambda tokens, number: decomposed_warning([tokens]),
        lambda tokens, number: long_line_warning([tokens], number, _LONG_ADVICE),
    ]
    for number, scores in enumerate(lm.stream(sentences)):
        for check in checks.copy():
            if (warning := check(scores.tokens, number)) is not None:
                log.warning("%s", warning)
                checks.remove(check)  # the first warning says enough
        candidates = lm.substitutes(scores.tokens, k=substitutes) if substitutes else []  # one list per token
        if as_json:
            value = {
                "tokens": scores.tokens,
                "unknown": scores.unknown,
                "log_prob": scores.log_prob if scores.tokens else None,  # JSON has no nan
                "perplexity": scores.perplexity if scores.tokens else None,
                "forward": scores.forward.tolist(),
                "backward": None if scores.backward is None else scores.backward.tolist(),
                "substitutes": [[[s.word, s.log_prob] for s in at_token] for at_token in candidates],
            }
            print(json.dumps(value, ensure_ascii=False))
            continue
        unknown = [token for token, is_unknown in zip(scores.tokens, scores.unknown, strict=True) if is_unknown]
        note = f"  (scored as <UNK>: {', '.join(unknown)})" if unknown else ""
        print(f"{scores.log_prob:10.2f}  perplexity {scores.perplexity:,.1f}  {' '.join(scores.tokens)}{note}")
        if tokens or substitutes:
            for i, token in enumerate(scores.tokens):
                words = ", ".join(s.word for s in candidates[i]) if candidates else ""
                backward = "" if scores.backward is None else f"{scores.backward[i + 1]:.2f}"
                print(f"{scores.forward[i]:12.2f} {backward:>9}  {token:20} {words}")
