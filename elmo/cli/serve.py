"""`elmo serve`: the HTTP server of one model."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elmo.cli.options import Device, ModelName, Tokenizer, print_status
from elmo.errors import ConfigError, DataError
from elmo.serve.settings import ServeSettings, is_loopback

if TYPE_CHECKING:
    from elmo.serve.server import Started

EXAMPLE = "elmo serve --port 8000 --workers 2"


def run(
    model: ModelName = "default",
    host: Annotated[
        str, typer.Option(help="Address to listen on. 127.0.0.1: only this machine; 0.0.0.0: every network.")
    ] = ServeSettings.host,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes any free port.")
    ] = ServeSettings.port,
    device: Device = "auto",
    dtype: Annotated[
        str, typer.Option(help="Precision of the computation: float32, bfloat16, float16, float64, int8.")
    ] = "float32",
    tokenizer: Tokenizer = None,
    workers: Annotated[
        int, typer.Option(min=1, help="Number of processes that run the model.")
    ] = ServeSettings.workers,
    threads: Annotated[
        int, typer.Option(min=0, help="Threads per worker. Default: the cores divided by the workers.")
    ] = ServeSettings.threads,
    batch_tokens: Annotated[
        int, typer.Option(min=1, help="Maximum number of tokens per batch.")
    ] = ServeSettings.batch_tokens,
    queue_requests: Annotated[
        int, typer.Option(min=1, help="Maximum number of waiting requests; more are refused with status 429.")
    ] = ServeSettings.queue_requests,
    queue_tokens: Annotated[
        int, typer.Option(min=1, help="Maximum number of tokens of all unfinished requests; it bounds memory.")
    ] = ServeSettings.queue_tokens,
    max_tokens: Annotated[
        int, typer.Option(min=1, help="Maximum number of tokens per request.")
    ] = ServeSettings.max_tokens,
    max_body: Annotated[
        int, typer.Option(min=1, help="Maximum size of a request's body in bytes.")
    ] = ServeSettings.max_body,
    timeout: Annotated[
        float, typer.Option(help="Seconds until a request without result gets status 504.")
    ] = ServeSettings.timeout,
    read_timeout: Annotated[
        float, typer.Option(help="Seconds for the headers of a request, and again for its body.")
    ] = ServeSettings.read_timeout,
    batch_timeout: Annotated[
        float, typer.Option(help="Seconds after which a worker that computes a batch is replaced.")
    ] = ServeSettings.batch_timeout,
    stall_timeout: Annotated[
        float, typer.Option(help="Seconds without heartbeat after which a worker is replaced.")
    ] = ServeSettings.stall_timeout,
    grace: Annotated[float, typer.Option(help="Seconds for running requests after SIGTERM.")] = ServeSettings.grace,
    api_key_file: Annotated[
        Path | None,
        typer.Option(help="File with the API keys, one per line. Or set ELMO_API_KEY to one key. Default: no key."),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            help="Name of this server that a Host header may hold besides localhost; may be repeated. Default: no "
            "other name, or every name if --host is not a loopback address."
        ),
    ] = None,
    bank: Annotated[
        Path | None, typer.Option(help="Sentences for /similar, one per line. Default: the shipped ones.")
    ] = None,
    log_requests: Annotated[
        bool, typer.Option("--log-requests", help="Log method, route, status and time of every request; never text.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON when the server is ready.")] = False,
) -> None:
    """Serve a model over HTTP: vectors (also in OpenAI's schema), scores, substitutes, neighbours, explorer page."""
    require_server()
    import logging

    from elmo.serve.model_source import ModelSource
    from elmo.serve.server import serve

    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO if log_requests else logging.WARNING)
    settings = ServeSettings(
        host=host,
        port=port,
        workers=workers,
        threads=threads,
        batch_tokens=batch_tokens,
        queue_requests=queue_requests,
        queue_tokens=queue_tokens,
        max_tokens=max_tokens,
        max_body=max_body,
        timeout=timeout,
        read_timeout=read_timeout,
        batch_timeout=batch_timeout,
        stall_timeout=stall_timeout,
        grace=grace,
        api_keys=read_api_keys(api_key_file),
        allowed_hosts=tuple(name.lower() for name in allowed_host or []),
        bank=bank,
        log_requests=log_requests,
    )
    if not is_loopback(host) and not settings.api_keys:
        print_status("elmo: warning: other machines can reach this server, and it needs no API key (--api-key-file)")

    def announce(started: Started) -> None:
        info = started.info
        if as_json:
            facts = {"url": started.url, "pid": os.getpid(), "worker_pids": started.worker_pids, **vars(info)}
            print(json.dumps(facts), flush=True)
            return
        print_status(
            f"elmo: serving {info.name} ({info.num_layers} layers of {info.dim}) on {started.url}\n"
            f"  {info.device}, {info.dtype}, {info.executor}; workers: {workers}, threads of each: {info.num_threads}"
        )

    source = ModelSource(model=model, device=device, dtype=dtype, tokenizer=tokenizer)
    raise typer.Exit(serve(settings, source, on_start=announce))


def require_server() -> None:
    """Raises an error that names the missing library, if the server cannot run."""
    from elmo.files import require_extra

    for module in ("fastapi", "uvicorn"):
        require_extra(module, "serve")


def read_api_keys(path: Path | None) -> tuple[str, ...]:
    """The keys of a file and of the environment; a key is never an option, because every user can list processes."""
    keys = {"ELMO_API_KEY": os.environ["ELMO_API_KEY"]} if os.environ.get("ELMO_API_KEY") else {}  # by its place
    if path is not None:
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()  # some editors write a byte-order mark
        except (OSError, UnicodeError) as error:
            raise DataError(f"--api-key-file {path} cannot be read ({error}).") from error
        in_file = {f"{path}, line {number}": line.strip() for number, line in enumerate(lines, 1) if line.strip()}
        if not in_file:
            raise DataError(f"--api-key-file {path} holds no key.", "Write one key per line.")
        keys |= in_file
    for place, key in keys.items():
        if not key.isascii() or not key.isprintable() or " " in key:
            raise ConfigError(
                f"{place}: expected an API key; this has spaces or other characters than printable ASCII.",
                "Write one key per line and nothing else.",
            )
    return tuple(keys.values())
