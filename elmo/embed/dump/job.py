"""The bulk embedding of a file with `dump`: from its lines to the finished output.

dump(embedder, "corpus.txt", "corpus.hdf5", DumpOptions(layers="all", dtype="float16"))
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from elmo.embed.dump.assemble import MergeSummary, assemble, finish_result
from elmo.embed.dump.blocks import Block, cut_blocks
from elmo.embed.dump.embed_block import count_cut_tokens, embed_block
from elmo.embed.dump.estimate import Estimate, check_free_space, estimate, free_bytes
from elmo.embed.dump.input_text import long_line_warning, read_input
from elmo.embed.dump.options import DumpOptions
from elmo.embed.dump.part_file import Layout, PartFile, write_part_file
from elmo.embed.dump.part_folder import PartFolder
from elmo.embed.dump.plan import InputWatch, layout_of, make_plan
from elmo.embed.dump.target import STDOUT, Target, check_target, exists_error, is_finished, is_stream
from elmo.embed.dump.write_jsonl import json_line
from elmo.embed.embedder import Embedder
from elmo.embed.layer_choice import LayerChoice, choose_layers
from elmo.errors import ConfigError
from elmo.files import open_bytes
from elmo.model.lstm import State
from elmo.progress import Progress
from elmo.text.inputs import decomposed_warning, tokenization_warning

log = logging.getLogger(__name__)
Say = Callable[[str], None]
_LONG_ADVICE = "If lines are paragraphs, --paragraphs (in Python paragraphs=True) splits them into sentences."


@dataclass(kw_only=True)
class DumpSummary:
    """Counts and speed of a run. Counts are of all the input; those of a shard are of its own blocks."""

    path: str
    format: str
    lines: int = 0
    tokens: int = 0
    blocks: int = 0
    blocks_kept: int = 0  # blocks that an earlier run had finished
    cut_tokens: int = 0  # tokens longer than the model reads
    bytes: int = 0  # of the output; 0 for a shard and for a stream
    seconds: float = 0.0
    tokens_per_second: float = 0.0  # of the blocks that this run computed
    finished_before: bool = False  # an earlier run had finished the output, so this one did nothing


def dump(
    embedder: Embedder,
    source: str | Path,
    target: str | Path,
    options: DumpOptions | None = None,
    *,
    say: Say = log.info,
) -> DumpSummary:
    """Embeds every line of a file into an output file (or jsonl on standard output, for "-").

    Finished blocks are stored in OUT.parts/ until the output is complete; `resume` continues from them, and does
    nothing if the output exists and no blocks are left, because then the run is finished. A shard only
    adds its blocks there, and `merge` assembles the output. The embedder's carried state is reset.
    """
    options = options or DumpOptions()
    checked_target = check_target(source, target, options)
    if embedder.state == "carry" and options.shard:
        raise ConfigError(
            "With state 'carry' every block continues from the one before it, so shards are not possible.",
            "Drop --shard, or use --state reset or warm.",
        )
    if is_finished(checked_target, options):
        return finished_summary(checked_target)
    if not is_stream(source):
        open_bytes(source).close()  # raises its errors: no such file, a folder
    job = _Job(embedder, source, checked_target, options, say)
    return job.to_stdout() if str(target) == STDOUT else job.to_file()


def finished_summary(target: Target) -> DumpSummary:
    """The summary of a run that had been finished before; its input is not read, so the counts are zero."""
    return DumpSummary(
        path=str(target.path), format=target.format, bytes=target.path.stat().st_size, finished_before=True
    )


class _Job:
    """One run: its settings and its progress."""

    def __init__(self, embedder: Embedder, source: str | Path, target: Target, options: DumpOptions, say: Say) -> None:
        self.embedder, self.source, self.target, self.options, self.say = embedder, source, target, options, say
        self.choice: LayerChoice = choose_layers(options.chosen_layers, embedder.num_layers)
        self.layout: Layout = layout_of(embedder, self.choice, options)
        self.summary = DumpSummary(path=str(target.path), format=target.format)
        self.progress = Progress("embedding", None, show=options.show_progress)
        self.computed_tokens = 0  # in this run
        self.start = time.monotonic()

    def to_stdout(self) -> DumpSummary:
        self.summary.path = STDOUT
        self.embedder.reset_state()
        with self.progress:
            for block in self._blocks():
                start = 0
                rows = self._embed(block)
                for number, tokens in enumerate(block.sentences, block.first_line):
                    count = 1 if self.layout.pooled else len(tokens)
                    line = json_line(number, tokens, self.layout.sentence(rows[start : start + count]))
                    sys.stdout.buffer.write(line)
                    start += count
                sys.stdout.buffer.flush()
                self._count(block)
        return self._finished()

    def to_file(self) -> DumpSummary:
        options = self.options
        watch = InputWatch(self.source)
        plan = make_plan(self.embedder, self.source, self.choice, self.target.format, options)
        if options.use_sentence_keys:
            from elmo.embed.dump.write_hdf5 import check_sentence_keys

            check_sentence_keys(self._sentences(), self._place)
        size = estimate(
            *(self.source, self.embedder.tokenize, self.layout, self.target.format, options),
            rules=self.embedder.sentence_rules,
        )
        folder = PartFolder(self.target)
        folder.lock(options.shard)
        try:
            folder.begin(plan, resume=options.resume or options.shard is not None, overwrite=options.overwrite)
            if options.shard is None and (merged := finish_result(folder)):
                return self._result(merged)
            self._run(folder, size, watch)
        except BaseException:
            self._report_unfinished(folder)
            raise
        finally:
            folder.close()
        return self._finished()

    def _run(self, folder: PartFolder, size: Estimate | None, watch: InputWatch) -> None:
        if self.target.path.exists() and not self.options.overwrite:
            raise exists_error(self.target.path)
        if size is not None:
            self._check_size(folder, size)
        self._fill(folder)
        watch.check()
        counts = {"blocks": self.summary.blocks, "lines": self.summary.lines, "tokens": self.summary.tokens}
        if self.options.shard is None:
            folder.write("end.json", counts)
            self.say("assembling the output")
            self._result(assemble(folder, force=self.options.force))

    def _fill(self, folder: PartFolder) -> None:
        """Embeds every block that is not finished yet, in order."""
        embedder, shard = self.embedder, self.options.shard
        carries = embedder.state == "carry"
        embedder.reset_state()
        total = DumpSummary(path="", format="")
        skipped: int | None = None  # the block before, if an earlier run finished it: its state is not loaded yet
        with self.progress:
            for block in self._blocks():
                total.blocks, total.lines = total.blocks + 1, total.lines + len(block.lines)
                total.tokens += block.num_tokens
                if shard and block.number % shard[1] != shard[0] - 1:
                    self._expect_less(block)
                    continue
                if folder.has(block.number):
                    self.summary.blocks_kept += 1
                    self._expect_less(block)
                    skipped = block.number
                else:
                    if carries and skipped is not None:
                        embedder.reset_state(_load_state(PartFile(folder.part_path(skipped)), embedder))
                    skipped = None
                    rows = self._embed(block)
                    state = _state_arrays(embedder.carried_state()) if carries else None
                    write_part_file(folder.part_path(block.number), block, rows, state)
                    self.computed_tokens += block.num_tokens
                    self.progress.advance(block.num_tokens)
                self._count(block, advance=False)
        if shard:
            folder.write("end.json", {"blocks": total.blocks, "lines": total.lines, "tokens": total.tokens})

    @property
    def _place(self) -> str:
        """The input as errors name it, before the number of a line or, of paragraphs, a sentence."""
        return f"{self.source}, sentence" if self.options.paragraphs else str(self.source)

    def _sentences(self) -> Iterator[str]:
        return read_input(self.source, self.options, self.embedder.sentence_rules)

    def _blocks(self) -> Iterator[Block]:
        options, embedder = self.options, self.embedder
        blocks = cut_blocks(
            self._sentences(),
            embedder.tokenize,
            max_lines=options.block_lines,
            max_tokens=options.block_tokens,
            multiple=options.batch_size if embedder.state == "carry" else 1,
        )
        checks_length = not options.paragraphs
        for block in blocks:
            long_line = long_line_warning(block.sentences, block.first_line, _LONG_ADVICE) if checks_length else None
            if long_line is not None:
                log.warning("%s: %s", self.source, long_line)
                checks_length = False  # one warning per run
            doubt = tokenization_warning(block.sentences) if block.number == 0 else None
            if doubt and embedder.tokenizer_name == "whitespace":
                log.warning("%s: %s", self.source, doubt)
            if block.number == 0 and (warning := decomposed_warning(block.sentences)) is not None:
                log.warning("%s: %s", self.source, warning)
            yield block

    def _embed(self, block: Block) -> np.ndarray:
        return embed_block(self.embedder, block, self.choice, self.layout, self.options, source=self._place)

    def _count(self, block: Block, *, advance: bool = True) -> None:
        summary, tokens = self.summary, block.num_tokens
        summary.blocks, summary.lines = summary.blocks + 1, summary.lines + len(block.lines)
        summary.tokens += tokens
        summary.cut_tokens += count_cut_tokens(self.embedder, block.sentences)
        if advance:
            self.computed_tokens += tokens
            self.progress.advance(tokens)

    def _expect_less(self, block: Block) -> None:
        if self.progress.total is not None:
            self.progress.total = max(self.progress.total - block.num_tokens, 1)

    def _check_size(self, folder: PartFolder, size: Estimate) -> None:
        self.progress.total = size.tokens
        stored = sum(folder.part_path(number).stat().st_size for number in folder.blocks())
        needed = max(size.part_bytes - stored, 0) + (0 if self.options.shard else size.result_bytes)
        free = free_bytes(self.target.path)
        self.say(
            f"about {size.tokens:,} tokens: {size.result_bytes / 1e6:,.1f} MB, and {size.part_bytes / 1e6:,.1f} MB "
            f"for part files until the output is complete; {free / 1e6:,.0f} MB are free"
        )
        if not self.options.force:
            check_free_space(self.target.path, needed)

    def _report_unfinished(self, folder: PartFolder) -> None:
        """Reports the finished blocks of a run that ends early; a run without any leaves no folder behind."""
        if not folder.plan or not folder.path.exists():
            return
        if num_finished := len(folder.blocks()):
            self.say(f"{num_finished} finished blocks are stored in {folder.path}; continue with --resume")
        elif self.options.shard is None:
            folder.remove()

    def _result(self, merged: MergeSummary) -> DumpSummary:
        self.summary.blocks, self.summary.lines, self.summary.tokens = merged.blocks, merged.lines, merged.tokens
        self.summary.bytes = merged.bytes
        return self.summary

    def _finished(self) -> DumpSummary:
        summary = self.summary
        summary.seconds = time.monotonic() - self.start
        summary.tokens_per_second = self.computed_tokens / max(summary.seconds, 1e-9)
        if summary.cut_tokens:
            log.warning("%d tokens are longer than the model reads and were cut.", summary.cut_tokens)
        return summary


def _state_arrays(state: State | None) -> tuple[np.ndarray, np.ndarray] | None:
    if state is None:
        return None
    h, c = (t.cpu() if t.dtype == torch.float64 else t.float().cpu() for t in state)  # numpy has no bfloat16
    return h.numpy(), c.numpy()


def _load_state(part_file: PartFile, embedder: Embedder) -> State | None:
    arrays = part_file.state()
    if arrays is None:
        return None
    parameter = next(embedder.model.parameters())
    return State(*(torch.from_numpy(array.copy()).to(parameter) for array in arrays))
