"""A local HTTP server for tests of downloads, whose faults can be chosen."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Site:
    """What the server has and how it behaves; a test changes it while the server runs."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)  # path -> contents
    etags: dict[str, str] = field(default_factory=dict)  # default: one that depends on the contents
    redirects: dict[str, str] = field(default_factory=dict)
    statuses: list[int] = field(default_factory=list)  # statuses of the next answers, before normal ones
    cut_after: list[int] = field(default_factory=list)  # the next answers end after so many bytes
    ranges: bool = True  # False: Range is ignored
    validators: bool = True  # False: neither ETag nor Last-Modified
    content_type: str = "application/octet-stream"
    on_request: threading.Event | None = None  # set at each request
    proceed: threading.Event | None = None  # an answer waits for it
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)  # path, headers


@contextmanager
def serve() -> Iterator[Site]:
    """Runs a server on a free port of this machine until the end of the block."""
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _answer(self, site)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    site.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _answer(handler: BaseHTTPRequestHandler, site: Site) -> None:
    site.requests.append((handler.path, dict(handler.headers)))
    if site.on_request is not None:
        site.on_request.set()
    if site.proceed is not None:
        site.proceed.wait(900)
    if site.statuses:
        handler.send_error(site.statuses.pop(0))
        return
    if handler.path in site.redirects:
        handler.send_response(302)
        handler.send_header("Location", site.redirects[handler.path])
        handler.end_headers()
        return
    if handler.path not in site.files:
        handler.send_error(404)
        return
    data = site.files[handler.path]
    etag = site.etags.get(handler.path, f'"{hash(data)}"')
    start = 0
    wanted = handler.headers.get("Range", "")
    if site.ranges and wanted and handler.headers.get("If-Range", etag) == etag:
        start = int(wanted.removeprefix("bytes=").rstrip("-"))
        if start >= len(data):
            handler.send_response(416)
            handler.send_header("Content-Range", f"bytes */{len(data)}")
            handler.end_headers()
            return
    handler.send_response(206 if start else 200)
    if start:
        handler.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
    handler.send_header("Content-Length", str(len(data) - start))
    handler.send_header("Content-Type", site.content_type)
    if site.validators:
        handler.send_header("ETag", etag)
    handler.end_headers()
    end = site.cut_after.pop(0) if site.cut_after else len(data)
    handler.wfile.write(data[start:][:end])
