"""The groups of options in the help of a verb: one table of flags, because a flag means the same in every verb."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

GROUPS: dict[str, tuple[str, ...]] = {  # heading: its flags; "--flag VERB" holds in one verb alone
    "Model": (
        "--model", "--weights", "--elmo", "--state", "--preset", "--recipe", "--words", "--place", "--tune",
        "--finetune-bilm", "--finetune-epochs", "--size", "--vectors", "--compute-dtype",
    ),
    "Text and data": (
        "--train", "--dev", "--test", "--text", "--file", "--tokenizer", "--encoding", "--errors", "--heldout",
        "--also", "--paragraphs", "--max-chars", "--min-count", "--max-vocab", "--vocab", "--specials", "--new-words",
        "--check", "--carried", "--column", "--limit", "--examples", "--shares", "--sentences", "--language", "--bank",
        "--temperature",
        "--missing", "--corpus", "--max-words",
    ),
    "Search": ("-k", "--same-word", "--beside", "--layers similar", "--index"),
    "Training": (
        "--config", "--set", "--epochs", "--max-steps", "--max-tokens", "--stop-after", "--rows", "--lr",
        "--precision", "--seed", "--seeds", "--updates", "--only", "--cache", "--strict-resume", "--dry-run",
    ),
    "Measurement": ("--seconds", "--rounds", "--growth", "--full", "--feed", "--path", "--cpu-time"),
    "Output": (
        "--out", "--layers", "--pool", "--format", "--dtype", "--to", "--storage", "--head-bits", "--without-head",
        "--allow-nonfinite", "--name", "--card", "--use-sentence-keys", "--forget-sentences", "--scores", "--tokens",
        "--substitutes", "--tensors", "--markdown", "--picture", "--pictures", "--title", "--notes", "--overwrite",
        "--force", "--json",
    ),
    "Computation": (
        "--device", "--dtype serve", "--dtype bench", "--threads", "--workers", "--batch-size", "--block-tokens",
        "--batch-tokens", "--batch-timeout", "--resume", "--shard", "--shard-lines", "--ray", "--ray-address",
        "--actors",
    ),
    "Network": ("--host", "--port", "--allowed-host", "--api-key-file", "--browser", "--log-requests", "--url-base"),
    "Limits": (
        "--max-body", "--max-tokens serve", "--queue-requests", "--queue-tokens", "--timeout", "--read-timeout",
        "--stall-timeout", "--grace",
    ),
}  # fmt: skip
OTHER = "Other"
UNGROUPED = 6  # a command with at most so many options lists them under one heading


class GroupedCommand(TyperCommand):
    """A command whose help lists the arguments and then its options by group."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        parameters = [(parameter, parameter.get_help_record(ctx)) for parameter in self.get_params(ctx)]
        shown = [(parameter, record) for parameter, record in parameters if record is not None]
        sections = {"Arguments": [record for parameter, record in shown if parameter.param_type_name == "argument"]}
        options = [
            (max(parameter.opts, key=len), record)
            for parameter, record in shown
            if parameter.param_type_name == "option"
        ]
        if len(options) <= UNGROUPED + 1:  # --help is one
            sections["Options"] = [record for _, record in options]
        else:
            for heading in (*GROUPS, OTHER):
                own = [record for flag, record in options if group_of(flag, ctx.command_path.split()[1]) == heading]
                sections[f"{heading} options" if heading == OTHER else heading] = own
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


def group_of(flag: str, verb: str) -> str:
    """The heading of a flag in the help of a verb."""
    for wanted in (f"{flag} {verb}", flag):
        for heading, flags in GROUPS.items():
            if wanted in flags:
                return heading
    return OTHER
