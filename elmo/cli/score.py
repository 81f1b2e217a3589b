"""`elmo score`: how likely a language model finds each sentence, each word, and what else it would expect."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated

import typer

from elmo.errors import ConfigError

EXAMPLE = 'elmo score "The cat sat on the mat ." --model my-model/ --substitutes 5'


def run(
    text: Annotated[str, typer.Argument(help="A sentence, or - for one a line from standard input.")] = "-",
    file: Annotated[Path | None, typer.Option(help="Read sentences from this file instead, one a line.")] = None,
    model: Annotated[str, typer.Option(help="Name, folder or file of a model with its softmax.")] = "default",
    tokenizer: Annotated[str, typer.Option(help="default, whitespace, spacy:LANG, moses:LANG.")] = "default",
    tokens: Annotated[bool, typer.Option("--tokens", help="Show every word's scores.")] = False,
    substitutes: Annotated[int, typer.Option(min=0, help="Show so many likelier words at each place.")] = 0,
    state: Annotated[str, typer.Option(help="reset, warm or carry.")] = "reset",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a sentence.")] = False,
) -> None:
    """Score sentences with a model's own softmax, forward and backward."""
    import elmo
    from elmo.embed.lm import LanguageModel
    from elmo.text.lines import read_lines

    if substitutes and state == "carry":
        raise ConfigError("Substitutes are for a sentence on its own; state carry would run it twice.", "Use reset.")
    lm = LanguageModel(elmo.load(model, tokenizer=tokenizer, state=state, device=device))
    lines = read_lines(file or "-") if file or text == "-" else iter([text])
    sentences = ([token.text for token in lm.embedder.tokenize(line)] for line in lines)
    for scores in lm.stream(sentences):
        count = max(2 * len(scores.forward), 1)
        perplexity = math.exp(-(scores.forward.sum() + scores.backward.sum()) / count)
        places = lm.substitutes(scores.tokens, k=substitutes) if substitutes else []
        if as_json:
            value = {
                "tokens": scores.tokens,
                "log_prob": scores.log_prob,
                "perplexity": perplexity,
                "forward": scores.forward.tolist(),
                "backward": scores.backward.tolist(),
                "substitutes": [[[s.word, s.log_prob] for s in place] for place in places],
            }
            print(json.dumps(value, ensure_ascii=False))
            continue
        print(f"{scores.log_prob:10.2f}  perplexity {perplexity:,.1f}  {' '.join(scores.tokens)}")
        if tokens or substitutes:
            for i, token in enumerate(scores.tokens):
                words = ", ".join(s.word for s in places[i]) if places else ""
                print(f"{scores.forward[i]:12.2f} {scores.backward[i + 1]:9.2f}  {token:20} {words}")
