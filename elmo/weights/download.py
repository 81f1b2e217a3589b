"""Downloads one file over HTTP: resumable, with checks of its size, kind and checksum.

A partial file (`elmo.weights.partial_file`) is continued only if the server confirms that the file is still the same
(Range with If-Range); otherwise the download starts again. urllib handles redirects and the proxies of the environment
(https_proxy, no_proxy).
"""

from __future__ import annotations

import http.client
import logging
import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elmo import __version__
from elmo.errors import OutputError, WeightsError
from elmo.files import explain_write
from elmo.progress import Progress
from elmo.weights.partial_file import Expected, discard, notes_path, read_notes, size_of, verify, write_notes

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 30.0  # without any data
RETRY_SECONDS = (1.0, 4.0, 15.0)  # waits before further attempts after an interruption; progress starts them again
SPARE_BYTES = 64 << 20  # that remain free on the disk
_BLOCK = 1 << 20
_TEMPORARY = (408, 425, 429, 500, 502, 503, 504)  # statuses after which another attempt may succeed


class _Interrupted(Exception):
    """The connection ended before the file did; another attempt can continue."""


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to http and https, but not from https to http."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if not newurl.startswith("https://") and (req.full_url.startswith("https://") or newurl[:7] != "http://"):
            raise WeightsError(f"{req.full_url} redirects to {newurl}, which is not encrypted.", "Download it by hand.")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def download(
    url: str,
    path: Path,
    expected: Expected | None = None,
    *,
    label: str = "",
    show: bool | None = None,
    timeout: float = TIMEOUT_SECONDS,
    retry_seconds: Sequence[float] = RETRY_SECONDS,
) -> str:
    """Downloads a file to `path` and returns its sha256; the file appears under its name only when it is complete.

    An interrupted download continues at the next attempt or the next call. A wrong checksum, or a web page in place of
    the file, is a WeightsError, and what was received is deleted. The caller holds a lock on the folder.
    """
    if not url.startswith(("https://", "http://")):
        raise WeightsError(
            f"{url!r} is not an address that can be downloaded.", "It must start with https:// or http://."
        )
    expected = expected or Expected()
    part = path.with_name(path.name + ".part")
    with explain_write(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    waits = list(retry_seconds)
    while True:
        before = size_of(part)
        try:
            _attempt(url, part, expected, label=label or path.name, show=show, timeout=timeout)
            break
        except _Interrupted as error:
            if size_of(part) > before:
                waits = list(retry_seconds)
            if not waits:
                raise WeightsError(
                    f"{url}: the download was interrupted ({error}).",
                    f"{size_of(part):,} bytes are stored in {part}; the next attempt continues after them.",
                ) from error
            log.warning("%s: interrupted (%s), trying again in %.0f s", url, error, waits[0])
            time.sleep(waits.pop(0))
    sha256 = verify(url, part, expected)
    with explain_write(path):
        part.replace(path)
    notes_path(part).unlink(missing_ok=True)
    return sha256


def _attempt(url: str, part: Path, expected: Expected, *, label: str, show: bool | None, timeout: float) -> None:
    """Receives the file, or the rest of it, with one request."""
    notes = read_notes(part, url)
    have = size_of(part)
    # without a validator, only a known checksum can tell that two halves belong together
    resumable = have > 0 and bool(notes.get("validator") or expected.sha256 or expected.sha1)
    if resumable and have == notes.get("total"):
        return
    headers = {"User-Agent": f"elmo/{__version__}", "Accept-Encoding": "identity"}
    if resumable:
        headers["Range"] = f"bytes={have}-"
        if notes.get("validator"):
            headers["If-Range"] = notes["validator"]
    response = _open(urllib.request.Request(url, headers=headers), timeout)
    if response is None:  # the range cannot be satisfied: the file is shorter now, or another one
        discard(part)
        raise _Interrupted("the file has changed on the server")
    with response:
        start, total = _range_of(response, have) if response.status == 206 else (0, _length(response))
        _check_response(url, response, total, expected)
        if start != (have if response.status == 206 else 0):
            discard(part)
            raise _Interrupted(f"the server sent the bytes from {start:,} on instead of {have:,}")
        if have and start == 0:
            log.warning("%s: the download starts again, because the server sent the file from its beginning", url)
        _check_space(part, (total or expected.num_bytes or 0) - start)
        write_notes(part, {"url": url, "validator": _validator(response), "total": total})
        received = start
        name = f"{label}, continued after {start:,} bytes" if start else label
        with explain_write(part), open(part, "ab" if start else "wb") as file:
            remaining = None if total is None else total - start
            with Progress(name, remaining, unit="bytes", show=show) as progress:
                while block := _read(response):
                    file.write(block)
                    received += len(block)
                    progress.advance(len(block))
    if total is not None and received < total:
        raise _Interrupted(f"the connection ended after {received:,} of {total:,} bytes")
    if total is not None and received > total:
        discard(part)
        raise _Interrupted(f"the server sent {received:,} bytes and announced {total:,}")


def _open(request: urllib.request.Request, timeout: float) -> Any:
    """The response; None: the requested range does not exist (416)."""
    try:
        return urllib.request.build_opener(_SafeRedirects).open(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:
            return None
        if error.code in _TEMPORARY:
            raise _Interrupted(f"status {error.code} {error.reason}") from error
        raise WeightsError(
            f"{request.full_url}: the server answered {error.code} {error.reason}.",
            "The publisher may have moved or removed the file.",
        ) from error
    except urllib.error.URLError as error:
        if isinstance(error.reason, (TimeoutError, ConnectionResetError)):
            raise _Interrupted(_reason(error.reason)) from error
        raise WeightsError(
            f"{request.full_url} cannot be reached ({_reason(error.reason)}).", f"Check the connection; {_proxies()}."
        ) from error
    except (http.client.InvalidURL, ValueError) as error:  # for example a port that is not a number
        raise WeightsError(f"{request.full_url!r} is not a valid address ({error}).") from error
    except (TimeoutError, ConnectionError, http.client.HTTPException) as error:
        raise _Interrupted(_reason(error)) from error


def _read(response: Any) -> bytes:
    try:
        block: bytes = response.read(_BLOCK)
    except (OSError, http.client.HTTPException) as error:
        raise _Interrupted(_reason(error)) from error
    return block


def _check_response(url: str, response: Any, total: int | None, expected: Expected) -> None:
    kind = response.headers.get("Content-Type", "")
    if kind.startswith("text/html"):
        raise WeightsError(
            f"{url}: the server sent a web page instead of the file.",
            "The publisher may have moved it, or a login page of your network answered.",
        )
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise WeightsError(f"{url}: the server sent the file in a changed encoding.", "Download it by hand.")
    if expected.num_bytes is not None and total is not None and total != expected.num_bytes:
        raise WeightsError(
            f"{url}: the server has a file of {total:,} bytes; the published one has {expected.num_bytes:,}.",
            "It is another file; nothing was downloaded.",
        )


def _check_space(part: Path, num_bytes: int) -> None:
    free = shutil.disk_usage(part.parent).free
    if num_bytes + SPARE_BYTES > free:
        raise OutputError(
            f"{part.parent} has {free / 1e6:,.0f} MB free; the download needs {num_bytes / 1e6:,.0f} MB.",
            "Free some space, or set ELMO_HOME to a folder on another disk.",
        )


def _range_of(response: Any, have: int) -> tuple[int, int | None]:
    """First byte and size of the complete file in a partial response."""
    match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
    if match is None:
        return have, None
    return int(match[1]), None if match[2] == "*" else int(match[2])


def _length(response: Any) -> int | None:
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdecimal() else None


def _validator(response: Any) -> str:
    """What identifies this version of the file in If-Range: a strong ETag, or else the time of its last change."""
    etag = str(response.headers.get("ETag", ""))
    return etag if etag.startswith('"') else str(response.headers.get("Last-Modified", ""))


def _reason(error: object) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return "no answer in time" if isinstance(error, TimeoutError) else " ".join(text.split())


def _proxies() -> str:
    proxies = {k: v for k, v in urllib.request.getproxies().items() if k in ("http", "https", "all")}
    if not proxies:
        return "no proxy is set (https_proxy)"
    # user names and passwords of a proxy stay out of messages
    return "proxy " + ", ".join(f"{k}: {re.sub(r'//[^/@]*@', '//', v)}" for k, v in sorted(proxies.items()))
