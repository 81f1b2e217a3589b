"""Does the server lose, mix up or slow down requests under load? Measures `elmo serve` on this machine.

    python benchmarks/serve.py --report benchmarks/results/serve_MACHINE_YYYYMM.md
    python benchmarks/serve.py --requests 5 --soak 10 --sentences 500       # a quick trial

load        64 clients x 100 requests of one sentence: every answer must be there and equal the offline vectors (1e-5);
            the p99 is given relative to one client in the same run
overload    512 clients x 10 requests against a queue of 256: statuses 200 and 429 must add up to the requests sent,
            clients that repeat after Retry-After must all succeed, and /healthz is answered meanwhile
soak        16 clients for five minutes, every tenth request broken: memory, open files and p99 after the first minute
throughput  requests of 32 sentences from 4 clients, same threads: /v1/embeddings against `Embedder.encode`, and /embed
            (one vector per token, as npy) against `Embedder.embed`
workers     the same throughput with one worker and with as many as there are cores, one thread each
balancer    the same throughput through nginx with deploy/nginx.conf, with one server and with two, one thread each
busy        16 clients, the server's default number of threads: requests per second beside a process that keeps one core
            busy, relative to the same requests without it
minilm      all-MiniLM-L6's architecture with random weights in a plain FastAPI server (benchmarks/serve_minilm.py), the
            same requests of one sentence from 16 clients

The client runs on the same machine and takes part of its cores. Prints a table, then one JSON line.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import psutil
import torch
from http_load import LoadResult, embed_bodies, embedding_bodies, run, run_clients
from serve_processes import Served, elmo_server, health_latencies, minilm_server, nginx_balancer

import elmo
from elmo.bench.sample import sample_sentences

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("load", "overload", "soak", "throughput", "workers", "balancer", "busy", "minilm")
TOLERANCE = 1e-5


class Bench:
    """The measurements of one model on one text; each returns its row of the report."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.sentences = sample_sentences(args.sentences, args.text)
        self.texts = [" ".join(tokens) for tokens in self.sentences]
        torch.set_num_threads(args.threads)
        self.embedder = elmo.load(args.model, device="cpu")
        self.expected = self.embedder.encode(self.texts)  # (N, D)
        self.num_tokens = sum(len(self.embedder.tokenize(text)) for text in self.texts)
        self.name = Path(args.model).name

    def load(self) -> dict[str, Any]:
        total = self.args.clients * self.args.requests
        bodies = embedding_bodies([[self.texts[i % len(self.texts)]] for i in range(total)], self.name)
        with self.server() as (port, _):
            one = run(run_clients(port, "/v1/embeddings", bodies[: min(300, total)], clients=1, check=self.is_right))
            many = run(run_clients(port, "/v1/embeddings", bodies, clients=self.args.clients, check=self.is_right))
        p99_one, p99_many = one.percentile(99), many.percentile(99)
        return {
            "requests": total, "answers 200": many.statuses[200], "lost": many.num_lost, "wrong": many.num_wrong,
            "requests/s": round(total / many.seconds, 1), "p50 ms": round(many.percentile(50), 1),
            "p99 ms": round(p99_many, 1), "one client: p99 ms": round(p99_one, 1),
            "one client: requests/s": round(len(one.latencies) / one.seconds, 1),
            "p99 / (p99 of one client x clients)": round(p99_many / (p99_one * self.args.clients), 3),
            "ok": many.statuses[200] == total and not many.num_lost and not many.num_wrong and not one.num_wrong,
        }  # fmt: skip

    def overload(self) -> dict[str, Any]:
        clients = 8 * self.args.clients
        total = clients * max(1, self.args.requests // 10)
        bodies = embedding_bodies([[self.texts[i % len(self.texts)]] for i in range(total)], self.name)
        with self.server("--queue-requests", str(clients // 2)) as (port, _), health_latencies(port) as health:
            once = run(run_clients(port, "/v1/embeddings", bodies, clients=clients, check=self.is_right))
            again = run(run_clients(port, "/v1/embeddings", bodies, clients=clients, check=self.is_right, retry=True))
        answered = once.statuses[200] + once.statuses[429]
        return {
            "clients": clients, "requests": total, "answers 200": once.statuses[200], "answers 429": once.statuses[429],
            "lost": once.num_lost, "429 without Retry-After": once.num_without_retry_after, "wrong": once.num_wrong,
            "with retries: answers 200": again.statuses[200], "with retries: seconds": round(again.seconds, 1),
            "p99 ms": round(once.percentile(99), 1), "/healthz answers": len(health),
            "/healthz, slowest ms": round(1000 * max(health), 1),
            "ok": answered == total and max(health) < 60 and not once.num_wrong and not once.num_without_retry_after
            and again.statuses[200] == total,
        }  # fmt: skip

    def soak(self) -> dict[str, Any]:
        bodies = embedding_bodies([[text] for text in self.texts], self.name)
        bodies = [b'{"input": ["broken"], "model": 1}' if i % 10 == 9 else body for i, body in enumerate(bodies)]
        slice_s = self.args.soak / 5
        measured = []
        with self.server() as (port, pids):
            for _ in range(5):
                part = run(
                    run_clients(
                        port, "/v1/embeddings", bodies, clients=16, check=self.is_right,
                        stop_at=time.monotonic() + slice_s,
                    )
                )  # fmt: skip
                processes = [psutil.Process(pid) for pid in pids]
                memory = sum(process.memory_info().rss for process in processes)
                measured.append((part, memory, sum(process.num_fds() for process in processes)))
        growth = measured[-1][1] / measured[0][1] - 1
        files = measured[-1][2] - measured[0][2]
        wrong = sum(part.num_wrong + part.num_lost for part, _, _ in measured)
        statuses = sum((part.statuses for part, _, _ in measured), LoadResult().statuses)
        slowdown = measured[-1][0].percentile(99) / measured[0][0].percentile(99)
        return {
            "seconds": self.args.soak, "answers 200": statuses[200], "answers 422": statuses[422],
            "wrong or lost": wrong, "memory, first fifth MB": round(measured[0][1] / 1e6),
            "memory, last fifth MB": round(measured[-1][1] / 1e6), "growth %": round(100 * growth, 2),
            "open files, change": files, "p99 last / first": round(slowdown, 2),
            "ok": growth < 0.05 and files <= 2 and slowdown <= 1.5 and not wrong and set(statuses) == {200, 422},
        }  # fmt: skip

    def throughput(self) -> dict[str, Any]:
        row: dict[str, Any] = {}
        for path, offline in (("/v1/embeddings", self.embedder.encode), ("/embed", self.embedder.embed)):
            row |= {f"{path}: {name}": value for name, value in self.share_of_offline(path, offline).items()}
        return {**row, "ok": all(value >= 0.8 for name, value in row.items() if name.endswith(": share"))}

    def share_of_offline(self, path: str, compute: Callable[[list[str]], Any]) -> dict[str, Any]:
        """The throughput of a route beside that of the library; both have one warm round before."""
        compute(self.texts)
        with self.server() as (port, (front, worker)):
            self.rate(port, path)
            before = [_cpu_seconds(pid) for pid in (front, worker)]
            online, offline, offline_cpu = [], [], 0.0
            for _ in range(self.args.rounds):  # in turn, because the speed of a machine changes
                online.append(self.rate(port, path))
                begin, cpu = time.monotonic(), time.process_time()
                compute(self.texts)
                offline_cpu += time.process_time() - cpu
                offline.append(self.num_tokens / (time.monotonic() - begin))
            front_cpu, worker_cpu = (_cpu_seconds(pid) - b for pid, b in zip((front, worker), before, strict=True))
        per_token = 1e6 / self.args.rounds / self.num_tokens
        return {
            "offline tokens/s": round(float(np.median(offline))), "server tokens/s": round(float(np.median(online))),
            "lowest": round(min(online)), "highest": round(max(online)),
            "share": round(float(np.median(online) / np.median(offline)), 3),
            "CPU ms per 1000 tokens, offline": round(per_token * offline_cpu, 1),
            "CPU ms per 1000 tokens, worker": round(per_token * worker_cpu, 1),
            "CPU ms per 1000 tokens, front process": round(per_token * front_cpu, 1),
        }  # fmt: skip

    def workers(self) -> dict[str, Any]:
        rates = {}
        for count in sorted({1, os.cpu_count() or 1}):
            with self.server("--workers", str(count), threads=1) as (port, _):
                rates[count] = self.median_rate(port)
        return _scaling(rates, "workers")

    def balancer(self) -> dict[str, Any]:
        if shutil.which("nginx") is None:
            return {"skipped": "nginx is not installed", "ok": True}
        rates = {}
        for count in (1, 2):
            with contextlib.ExitStack() as stack:
                ports = [stack.enter_context(self.server(threads=1))[0] for _ in range(count)]
                rates[count] = self.median_rate(stack.enter_context(nginx_balancer(ports)))
        return _scaling(rates, "servers behind nginx")

    def busy(self) -> dict[str, Any]:
        total = 32 * self.args.requests
        bodies = embedding_bodies([[self.texts[i % len(self.texts)]] for i in range(total)], self.name)
        with self.server(threads=0) as (port, _):
            idle = run(run_clients(port, "/v1/embeddings", bodies, clients=16, check=self.is_right))
            with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as loop:
                try:
                    busy = run(run_clients(port, "/v1/embeddings", bodies, clients=16, check=self.is_right))
                finally:
                    loop.kill()
        share = idle.seconds / busy.seconds
        return {
            "requests": total, "idle requests/s": round(total / idle.seconds, 1),
            "busy requests/s": round(total / busy.seconds, 1), "share": round(share, 2),
            "idle p99 ms": round(idle.percentile(99), 1), "busy p99 ms": round(busy.percentile(99), 1),
            "wrong": idle.num_wrong + busy.num_wrong,
            "ok": share >= 0.3 and busy.statuses[200] == total and not idle.num_wrong + busy.num_wrong,
        }  # fmt: skip

    def minilm(self) -> dict[str, Any]:
        total = 16 * self.args.requests
        bodies = embedding_bodies([[self.texts[i % len(self.texts)]] for i in range(total)], self.name)
        row: dict[str, Any] = {}
        for label, server in (("elmo", self.server()), ("MiniLM", minilm_server(self.args.threads))):
            with server as (port, _):
                run(run_clients(port, "/v1/embeddings", bodies[:32], clients=4))
                result = run(run_clients(port, "/v1/embeddings", bodies, clients=16))
                row[f"{label} requests/s"] = round(result.statuses[200] / result.seconds, 1)
                row[f"{label} p99 ms"] = round(result.percentile(99), 1)
        return {**row, "ok": True}

    def median_rate(self, port: int) -> float:
        self.rate(port)  # warm
        return float(np.median([self.rate(port) for _ in range(self.args.rounds)]))

    def rate(self, port: int, path: str = "/v1/embeddings") -> float:
        """Tokens per second of the server for all sentences, 32 per request, from 4 clients."""
        groups = [self.texts[i : i + 32] for i in range(0, len(self.texts), 32)]
        if path == "/embed":
            result = run(run_clients(port, path, embed_bodies(groups), clients=4, accept="application/x-npy"))
        else:
            result = run(run_clients(port, path, embedding_bodies(groups, self.name), clients=4))
        assert result.statuses[200] == len(groups), result.statuses
        return self.num_tokens / result.seconds

    def is_right(self, number: int, body: bytes) -> bool:
        """Whether an answer holds the offline vector of its sentence."""
        text = json.loads(body)["data"][0]["embedding"]
        vector = np.frombuffer(base64.b64decode(text), dtype="<f4")
        return bool(np.abs(vector - self.expected[number % len(self.expected)]).max() <= TOLERANCE)

    def server(self, *options: str, threads: int | None = None) -> contextlib.AbstractContextManager[Served]:
        return elmo_server(self.args.model, *options, threads=self.args.threads if threads is None else threads)


def _scaling(rates: dict[int, float], what: str) -> dict[str, Any]:
    """The row of throughputs with one process and with several, each with one thread."""
    most = max(rates)
    row = {f"{count} {what}, tokens/s": round(rate) for count, rate in rates.items()}
    ratio = rates[most] / rates[1]
    return {**row, "tokens/s per core": round(rates[most] / most), "ratio": round(ratio, 2), "ok": ratio >= 0.8}


def _cpu_seconds(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def machine() -> dict[str, Any]:
    """Hardware, versions and commit."""
    cpu = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.processor(),
    )
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return {
        "cpu": cpu, "cores": os.cpu_count(), "load average at the start": round(os.getloadavg()[0], 1),
        "python": platform.python_version(), "torch": torch.__version__, "commit": commit.stdout.strip(),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Load, soak and throughput of `elmo serve`.")
    parser.add_argument("--model", default="default")
    parser.add_argument("--text", help="one sentence per line; default: Python's language reference")
    parser.add_argument("--sentences", type=int, default=3000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--requests", type=int, default=100, help="per client")
    parser.add_argument("--soak", type=float, default=300, help="seconds")
    parser.add_argument("--threads", type=int, default=1, help="of the worker and of the offline measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--report", help="Markdown file to write")
    args = parser.parse_args()
    facts = machine()
    bench = Bench(args)
    rows: dict[str, dict[str, Any]] = {}
    for part in args.parts.split(","):
        rows[part] = getattr(bench, part)()
        print(f"{part:10} " + ", ".join(f"{name} {value}" for name, value in rows[part].items()), flush=True)
    if args.report:
        lines = [f"- {name}: {value}" for name, value in facts.items()]
        lines += [
            f"- command: `python benchmarks/serve.py {' '.join(sys.argv[1:])}`",
            f"- tokens: {bench.num_tokens:,}",
        ]
        for part, row in rows.items():
            lines += ["", f"## {part}", "", "| measure | value |", "|---|---|"]
            lines += [f"| {name} | {value} |" for name, value in row.items()]
        Path(args.report).write_text("# The server under load\n\n" + "\n".join(lines) + "\n")
    print(json.dumps({"machine": facts, "parts": rows}))
    sys.exit(not all(row["ok"] for row in rows.values()))


if __name__ == "__main__":
    main()
