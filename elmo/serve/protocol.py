"""Uvicorn's HTTP protocol with the timeouts that it lacks: of a request's headers, and of clients that do not read."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


def timed_protocol(read_timeout: float, write_timeout: float) -> type[H11Protocol]:
    """The protocol class of a server. Uvicorn makes one object of it per connection."""

    class TimedProtocol(H11Protocol):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._header_timer: asyncio.TimerHandle | None = None
            self._write_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
            super().connection_made(transport)
            self._watch_headers()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
                self._watch_headers()  # a part of a request's headers is there
            else:
                self._stop_watching()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_watching()
            self._stop_write_timer()
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            super().pause_writing()  # the client reads slower than the server writes
            if self._write_timer is None:
                self._write_timer = self.loop.call_later(write_timeout, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._stop_write_timer()

        def timeout_keep_alive_handler(self) -> None:
            super().timeout_keep_alive_handler()  # closes when all is written, which a client can put off for ever
            if self._write_timer is None and self.transport.get_write_buffer_size():
                self._write_timer = self.loop.call_later(write_timeout, self.transport.abort)

        def _watch_headers(self) -> None:
            if self._header_timer is None:
                self._header_timer = self.loop.call_later(read_timeout, self.transport.abort)

        def _stop_watching(self) -> None:
            if self._header_timer is not None:
                self._header_timer.cancel()
                self._header_timer = None

        def _stop_write_timer(self) -> None:
            if self._write_timer is not None:
                self._write_timer.cancel()
                self._write_timer = None

    return TimedProtocol
