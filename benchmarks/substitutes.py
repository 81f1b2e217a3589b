"""Do substitutes fit better if a word's own frequency counts once? Rank of the true word in held-out sentences.

    python benchmarks/substitutes.py held_out.txt [--model default] [--sentences 400] [--skip 120]

The text has one tokenised sentence per line; the sentences are evenly spaced after the first `--skip` lines. At each
content word of the vocabulary, the model ranks its whole vocabulary in three ways: by log p(word | left) +
log p(word | right), by that minus log p(word) with p(word) ~ 1 / rank, and with the word counts of `--counts` (a text
with one tokenised sentence per line). The share is of places where the first word is a function word or punctuation.
Ends with one JSON line.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import elmo
from elmo.embed.layer_choice import choose_layers
from elmo.embed.lm import LanguageModel
from elmo.text.lines import read_lines

FUNCTION_WORDS = (
    "a an the this that these those some any no every each all both either neither such what which whose who whom i me "
    "my mine myself you your yours yourself he him his himself she her hers herself it its itself we us our ours they "
    "them their theirs themselves one ones something anything nothing someone anyone everyone about above across after "
    "against along among around as at before behind below beneath beside between beyond by despite down during except "
    "for from in inside into like near of off on onto out outside over past per since through throughout till to "
    "toward towards under until up upon via with within without and but or nor so yet if because although though while "
    "whereas unless than whether when where why how be am is are was were been being have has had having do does did "
    "doing done can could may might must shall should will would not n't 's 't 're 've 'll 'd 'm there here then also "
    "too very just only even again more most much many few less least other another same own"
)

_FUNCTION_WORD_SET = frozenset(FUNCTION_WORDS.split())


def main() -> None:
    parser = argparse.ArgumentParser(description="Substitutes with and without the word's own frequency.")
    parser.add_argument("text")
    parser.add_argument("--model", default="default")
    parser.add_argument("--sentences", type=int, default=400)
    parser.add_argument("--skip", type=int, default=120)
    parser.add_argument("--counts")
    args = parser.parse_args()
    sentences = [tokens for tokens in map(str.split, read_lines(args.text)) if tokens][args.skip :]
    sentences = sentences[:: max(1, len(sentences) // args.sentences)][: args.sentences]
    lm = LanguageModel(elmo.load(args.model, device="cpu"))
    zipf = torch.from_numpy(lm.unigram_log_probs).float()  # (V,)
    log_priors = {"before": torch.zeros(()), "after, Zipf's law": zipf}
    if args.counts:
        counts = Counter(token for line in read_lines(args.counts) for token in line.split())
        counted = LanguageModel(lm.embedder, word_counts=[counts[word] for word in lm.vocab.words])
        log_priors["after, word counts"] = torch.from_numpy(counted.unigram_log_probs).float()
    symbols = torch.tensor([lm.vocab.bos, lm.vocab.eos, lm.vocab.unk])
    ranks: dict[str, list[float]] = {name: [] for name in log_priors}
    first_is_function: dict[str, list[bool]] = {name: [] for name in log_priors}
    P = lm.embedder.model.config.lstm.proj_dim
    layer_choice = choose_layers("top", lm.embedder.num_layers)
    for group, layers in lm.embedder.run(sentences, layer_choice, batch_size=16):
        for row, number in enumerate(group):
            tokens = sentences[number]
            places = [p for p, token in enumerate(tokens) if token in lm.vocab and is_content(token)]
            if not places:
                continue
            before, after = layers[0, row, places, :P], layers[0, row, [p + 2 for p in places], P:]  # (N, P)
            scores = sum(torch.log_softmax(h @ lm.head.weight.t() + lm.head.bias, dim=-1) for h in (before, after))
            scores[:, symbols] = -torch.inf  # (N, V)
            targets = torch.from_numpy(lm.vocab.ids([tokens[p] for p in places]))[:, None]  # (N, 1)
            for name, log_prior in log_priors.items():
                ranked = scores - log_prior  # (N, V)
                ranks[name] += ((ranked > ranked.gather(1, targets)).sum(dim=1) + 1).tolist()
                best = [lm.vocab.words[i] for i in ranked.argmax(dim=1).tolist()]
                first_is_function[name] += [not is_content(word) for word in best]
    rows = {}
    for name in log_priors:
        reciprocal = 1 / np.array(ranks[name])
        rows[name] = {
            "mean_reciprocal_rank": round(float(reciprocal.mean()), 4),
            "standard_error": round(float(reciprocal.std() / len(reciprocal) ** 0.5), 4),
            "true_word_first": round(float(np.mean(np.array(ranks[name]) == 1)), 4),
            "true_word_in_first_ten": round(float(np.mean(np.array(ranks[name]) <= 10)), 4),
            "function_word_first": round(float(np.mean(first_is_function[name])), 4),
        }
        print(f"{name:20} {rows[name]}", flush=True)
    facts = {"model": args.model, "sentences": len(sentences), "places": len(ranks["before"]), "rows": rows}
    print(json.dumps({"benchmark": "substitutes", **facts}))


def is_content(word: str) -> bool:
    """Whether a word is neither a function word nor punctuation or a number."""
    return word.lower() not in _FUNCTION_WORD_SET and any(char.isalpha() for char in word)


if __name__ == "__main__":
    with torch.inference_mode():
        main()
