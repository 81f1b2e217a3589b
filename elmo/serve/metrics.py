"""Counters, gauges and histograms in Prometheus's text format. Everything runs in the event loop: no locks."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable
from pathlib import Path

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
TOKENS = (16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0)
TEXTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)

_HELP = {
    "elmo_requests_total": ("counter", "Requests by route and status; 499: the client left before the answer."),
    "elmo_request_seconds": ("histogram", "Time from the end of a request's headers to the end of its answer."),
    "elmo_batches_total": ("counter", "Batches that workers computed."),
    "elmo_texts_total": ("counter", "Texts that workers computed."),
    "elmo_tokens_total": ("counter", "Tokens that workers computed."),
    "elmo_batch_seconds": ("histogram", "Time of a batch in a worker, with the transfer to it and back."),
    "elmo_batch_texts": ("histogram", "Texts per batch."),
    "elmo_batch_tokens": ("histogram", "Tokens per batch."),
    "elmo_worker_restarts_total": ("counter", "Worker processes that were replaced."),
}
_BUCKETS = {
    "elmo_request_seconds": SECONDS,
    "elmo_batch_seconds": SECONDS,
    "elmo_batch_texts": TEXTS,
    "elmo_batch_tokens": TOKENS,
}
Labels = tuple[tuple[str, str], ...]


class Metrics:
    """All metrics of one server."""

    def __init__(self) -> None:
        self._counters: dict[str, dict[Labels, float]] = {}
        self._histograms: dict[str, dict[Labels, _Histogram]] = {}
        self._gauges: dict[str, tuple[str, Callable[[], float]]] = {}
        for name, (kind, _) in _HELP.items():
            if kind == "counter" and name != "elmo_requests_total":
                self._counters[name] = {(): 0.0}

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Adds to a counter."""
        values = self._counters.setdefault(name, {})
        key = tuple(sorted(labels.items()))
        values[key] = values.get(key, 0.0) + amount

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Adds an observation to a histogram."""
        histograms = self._histograms.setdefault(name, {})
        key = tuple(sorted(labels.items()))
        histograms.setdefault(key, _Histogram(_BUCKETS[name])).add(value)

    def gauge(self, name: str, help_text: str, read: Callable[[], float]) -> None:
        """Adds a value that is read when the metrics are."""
        self._gauges[name] = (help_text, read)

    def observe_batch(self, operation: str, num_texts: int, num_tokens: int, seconds: float) -> None:
        """Records one batch of a worker."""
        for name, amount in (("batches", 1), ("texts", num_texts), ("tokens", num_tokens)):
            self.count(f"elmo_{name}_total", amount)
        self.observe("elmo_batch_seconds", seconds, operation=operation)
        self.observe("elmo_batch_texts", num_texts)
        self.observe("elmo_batch_tokens", num_tokens)

    def render(self) -> str:
        """All metrics as text."""
        lines: list[str] = []
        for name, values in self._counters.items():
            lines += _header(name, *_HELP[name])
            lines += [_sample(name, labels, value) for labels, value in values.items()]
        for name, histograms in self._histograms.items():
            lines += _header(name, *_HELP[name])
            for labels, histogram in histograms.items():
                lines += histogram.samples(name, labels)
        for name, (help_text, read) in self._gauges.items():
            lines += [*_header(name, "gauge", help_text), _sample(name, (), read())]
        return "\n".join(lines) + "\n"


def process_gauges(metrics: Metrics) -> None:
    """Adds the memory and the open files of this process, where the system tells them (Linux)."""
    if Path("/proc/self/fd").exists():
        page = os.sysconf("SC_PAGE_SIZE")
        metrics.gauge(
            "process_resident_memory_bytes",
            "Memory of the front process, without its workers.",
            lambda: int(Path("/proc/self/statm").read_text().split()[1]) * page,
        )
        metrics.gauge(
            "process_open_fds", "Open files and sockets of the front process.", lambda: len(os.listdir("/proc/self/fd"))
        )


class _Histogram:
    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds, self.counts, self.total = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def samples(self, name: str, labels: Labels) -> list[str]:
        lines, cumulative = [], 0
        for bound, count in zip((*self.bounds, "+Inf"), self.counts, strict=True):
            cumulative += count
            lines.append(_sample(f"{name}_bucket", (*labels, ("le", str(bound))), cumulative))
        return [*lines, _sample(f"{name}_sum", labels, self.total), _sample(f"{name}_count", labels, cumulative)]


def _header(name: str, kind: str, help_text: str) -> list[str]:
    return [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]


def _sample(name: str, labels: Labels, value: float) -> str:
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
    number = str(int(value)) if float(value).is_integer() else repr(float(value))
    return f"{name}{{{inside}}} {number}" if inside else f"{name} {number}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
