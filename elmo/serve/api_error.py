"""ApiError: an answer that is not 200, with a status, a stable code, a message and the field that caused it."""

from __future__ import annotations

import json
from typing import Any

from elmo.serve.jobs import Failure


class ApiError(Exception):
    """Raised anywhere while a request is handled; the middleware or the app turns it into an answer."""

    def __init__(
        self, status: int, code: str, message: str, *, field: str | None = None, retry_after: int | None = None
    ) -> None:
        super().__init__(code)  # without the message, which may quote the text of a request
        self.status, self.code, self.message, self.field = status, code, message, field
        self.retry_after = retry_after

    @classmethod
    def of_failure(cls, failure: Failure, field: str) -> ApiError:
        """The failure of one item as the answer to its whole request."""
        retry_after = 1 if failure.status == 503 else None
        return cls(failure.status, failure.code, failure.message, field=field, retry_after=retry_after)

    def body(self, request_id: str, *, openai: bool = False) -> bytes:
        """The JSON of the answer; `openai` adds the names that OpenAI's clients read."""
        error: dict[str, Any] = {"code": self.code, "message": self.message, "field": self.field, "id": request_id}
        if openai:
            kind = "invalid_request_error" if self.status < 500 else "server_error"
            error |= {"type": kind, "param": self.field}
        return json.dumps({"error": error}).encode("ascii")  # escapes lone surrogates, which UTF-8 cannot encode

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Headers of the answer besides its length."""
        headers = [(b"content-type", b"application/json")]
        if self.retry_after is not None:
            headers.append((b"retry-after", str(self.retry_after).encode()))
        if self.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        return headers
