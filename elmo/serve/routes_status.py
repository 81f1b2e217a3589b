"""GET /healthz, /readyz, /metrics and /v1/models, and the explorer page with its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from elmo.serve.api_error import ApiError
from elmo.serve.responses import json_response
from elmo.serve.service import Service

STATIC = Path(__file__).parent / "static"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
}


def static_files(folder: Path) -> dict[str, tuple[bytes, str]]:
    """Content and type of each file of the page by its name. Requests name files of this list and reach no other."""
    files = sorted(path for path in folder.iterdir()) if folder.is_dir() else []
    return {
        path.name: (path.read_bytes(), _TYPES[path.suffix])
        for path in files
        if path.suffix in _TYPES and path.is_file() and not path.is_symlink()
    }


def add_routes(router: APIRouter, service: Service, folder: Path = STATIC) -> None:
    """Adds the routes to a router."""
    files = static_files(folder)

    def state() -> dict[str, Any]:
        workers = service.batcher.workers
        return {
            "workers": len(workers),
            "healthy_workers": service.batcher.num_healthy(),
            "draining": service.is_draining,
            "queue_requests": service.batcher.queue.num_waiting,
        }

    @router.get("/healthz", response_class=Response, summary="Whether a worker is alive (503: none)")
    async def healthz() -> Response:
        return json_response(state(), 200 if service.batcher.num_healthy() else 503)

    @router.get("/readyz", response_class=Response, summary="Whether new requests are welcome (503: no)")
    async def readyz() -> Response:
        is_full = service.batcher.queue.num_waiting >= service.settings.queue_requests
        is_ready = service.batcher.num_healthy() > 0 and not service.is_draining and not is_full
        return json_response(state(), 200 if is_ready else 503)

    @router.get("/metrics", response_class=Response, summary="Metrics for Prometheus")
    async def metrics() -> Response:
        return Response(service.metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @router.get("/v1/models", response_class=Response, summary="The model of this server (OpenAI's schema)")
    async def models() -> Response:
        info = service.info
        about = {
            "id": info.name,
            "object": "model",
            "created": 0,
            "owned_by": "elmo",
            "dim": info.dim,
            "num_layers": info.num_layers,
            "tokenizer": info.tokenizer,
            "dtype": info.dtype,
            "has_softmax": info.no_softmax is None,
            "max_tokens": service.settings.max_tokens,
            "max_texts": service.settings.max_texts,
        }
        return json_response({"object": "list", "data": [about]})

    @router.get("/", include_in_schema=False)
    async def page() -> Response:
        if service.bank is not None and "index.html" in files:
            service.bank.prepare(service.batcher)  # the page will ask for neighbours
        return _file("index.html")

    @router.get("/static/{name:path}", include_in_schema=False)
    async def static(name: str) -> Response:
        return _file(name)

    def _file(name: str) -> Response:
        if name not in files:
            raise ApiError(404, "not_found", "There is no such file.")
        content, media_type = files[name]
        return Response(content, media_type=media_type, headers={"Cache-Control": "no-cache"})
