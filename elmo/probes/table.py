"""Formats the record of a probe as a text table, as `elmo probe` prints it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def table(record: Mapping[str, Any]) -> str:
    """One line per view of the record, followed by the baselines that need no vectors."""
    return {"languages": _languages, "wsd": _wsd, "wic": _wic, "similarity": _similarity}.get(
        str(record["probe"]), _tags
    )(record["scores"])


def _tags(scores: Mapping[str, Any]) -> str:
    lines = [f"{'layer':10} {'dev':>7} {'test':>7}  {scores['metric']}"]
    for name, row in scores["views"].items():
        weights = row.get("layer_weights")
        note = f"  epoch {row['epoch']}" + (f", weights {' '.join(f'{w:.2f}' for w in weights)}" if weights else "")
        lines.append(f"{name:10} {row['dev']:7.2f} {row['test']:7.2f}{note}")
    baseline = scores["most_frequent_tag"]
    lines.append(f"{'most freq.':10} {baseline['dev']:7.2f} {baseline['test']:7.2f}")
    return "\n".join(lines)


def _languages(scores: Mapping[str, Any]) -> str:
    means = scores["mean"]
    columns = ["most_frequent_tag", *(["static"] if "static" in means else [])]
    columns += [name for name in means if name not in columns]
    titles = ["most freq." if name == "most_frequent_tag" else name for name in columns]
    lines = [f"{'language':10}" + "".join(f"{title:>11}" for title in titles) + f"  test {scores['metric']}"]
    for language, row in scores["languages"].items():
        values = {**row["views"], **{name: row[name] for name in ("static", "most_frequent_tag") if name in row}}
        cells = (f"{values[name]['test']:11.2f}" if name in values else f"{'-':>11}" for name in columns)
        lines.append(f"{language:10}" + "".join(cells))
    lines.append(f"{'mean':10}" + "".join(f"{means[name]['test']:11.2f}" for name in columns))
    return "\n".join(lines)


def _wsd(scores: Mapping[str, Any]) -> str:
    columns = [name for name in scores["wordnet_first_sense"] if name != "ALL_but_dev"]
    lines = [f"{'layer':22}" + "".join(f"{name[:3] + name[-2:] if len(name) > 6 else name:>7}" for name in columns)]

    def line(title: str, row: Mapping[str, Any], note: str = "") -> None:
        lines.append(f"{title:22}" + "".join(f"{row[name]:7.1f}" for name in columns) + note)

    for name, forms in scores["views"].items():
        weights = forms["plain"].get("layer_weights")
        note = f", weights {' '.join(f'{weight:.2f}' for weight in weights)}" if weights else ""
        line(name, forms["plain"], f"   {forms['plain']['no_back_off']:.1f} without back-off{note}")
        if "tuned" in forms:
            line(f"{name} tuned", forms["tuned"], _tuned_note(forms["tuned"]))
    line("WordNet first sense", scores["wordnet_first_sense"])
    line("SemCor most frequent", scores["semcor_most_frequent"])
    return "\n".join(lines)


def _tuned_note(tuned: Mapping[str, Any]) -> str:
    other_sets = f"; {tuned['ALL_but_dev']:.1f} on the other sets" if "ALL_but_dev" in tuned else ""
    return f"   {tuned['form']}, prior {tuned['prior']}{other_sets}"


def _wic(scores: Mapping[str, Any]) -> str:
    splits = list(scores["always_same"])
    header = "".join(f"{split:>8}" for split in splits)
    lines = [f"{'layer':10}{header}   centred{header[8:]}"]
    for name, forms in scores["views"].items():
        plain, centred = ("".join(f"{forms[form][split]:8.2f}" for split in splits) for form in ("plain", "centred"))
        lines.append(f"{name:10}{plain}  {centred}")
    lines.append(f"{'all same':10}" + "".join(f"{scores['always_same'][split]:8.2f}" for split in splits))
    return "\n".join(lines)


def _similarity(scores: Mapping[str, Any]) -> str:
    names = ("spearman", "pearson")
    lines = [f"{'layer':10}" + "".join(f"{name:>10}" for name in names) + "   centred" + f"{'pearson':>10}"]
    for view, forms in scores["views"].items():
        correlations = [forms[form][name] for form in ("plain", "centred") for name in names]
        lines.append(f"{view:10}" + "".join(f"{correlation:10.3f}" for correlation in correlations))
    return "\n".join(lines)
