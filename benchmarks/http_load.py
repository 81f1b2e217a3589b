"""A small HTTP client that loads a server from one process: keep-alive connections in one event loop."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

Check = Callable[[int, bytes], bool]  # number of the request, body of a 200: whether the answer is right


@dataclass
class LoadResult:
    """What the clients saw."""

    statuses: Counter[int] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)  # of status 200, in seconds
    num_wrong: int = 0  # answers with status 200 and wrong content
    num_lost: int = 0  # requests without an answer
    num_without_retry_after: int = 0  # among the answers with status 429
    seconds: float = 0.0

    def percentile(self, share: float) -> float:
        """Milliseconds."""
        return float(np.percentile(self.latencies, share)) * 1000 if self.latencies else float("nan")


async def run_clients(
    port: int,
    path: str,
    bodies: Sequence[bytes],
    *,
    clients: int,
    check: Check | None = None,
    retry: bool = False,
    stop_at: float | None = None,  # time.monotonic(): requests go round until then
    accept: str = "application/json",
) -> LoadResult:
    """Each client sends its share of the requests, one after the other, on one connection."""
    result = LoadResult()
    begin = time.monotonic()

    async def client(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        index = number
        while index < len(bodies) or stop_at is not None:
            if stop_at is not None and time.monotonic() > stop_at:
                break
            which = index % len(bodies)
            start = time.monotonic()
            try:
                status, headers, body = await exchange(reader, writer, path, bodies[which], accept)
            except (OSError, asyncio.IncompleteReadError, ValueError):
                result.num_lost += 1
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                index += clients
                continue
            result.statuses[status] += 1
            if status == 200:
                result.latencies.append(time.monotonic() - start)
                result.num_wrong += check is not None and not check(which, body)
            elif status == 429:
                result.num_without_retry_after += b"retry-after" not in headers
                if retry:
                    await asyncio.sleep(float(headers.get(b"retry-after", b"1")))
                    continue
            if headers.get(b"connection") == b"close":
                writer.close()
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            index += clients
        writer.close()

    await asyncio.gather(*(client(number) for number in range(clients)))
    result.seconds = time.monotonic() - begin
    return result


async def exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, body: bytes, accept: str
) -> tuple[int, dict[bytes, bytes], bytes]:
    """One request and its answer."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: {accept}\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    await writer.drain()
    status_line = await reader.readuntil(b"\r\n")
    headers: dict[bytes, bytes] = {}
    while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
        name, _, value = line.partition(b":")
        headers[name.strip().lower()] = value.strip()
    content = await reader.readexactly(int(headers.get(b"content-length", b"0")))
    return int(status_line.split()[1]), headers, content


def embedding_bodies(texts: Sequence[Sequence[str]], model: str) -> list[bytes]:
    """One request to /v1/embeddings per list of texts, with base64 answers."""
    fields = {"model": model, "encoding_format": "base64", "normalize": False}
    return [json.dumps({"input": list(group), **fields}).encode() for group in texts]


def embed_bodies(texts: Sequence[Sequence[str]]) -> list[bytes]:
    """One request to /embed per list of texts, for one vector per token."""
    return [json.dumps({"texts": list(group)}).encode() for group in texts]


def run(task: Awaitable[LoadResult]) -> LoadResult:
    """Runs a load to its end."""

    async def main() -> LoadResult:
        return await task

    return asyncio.run(main())
