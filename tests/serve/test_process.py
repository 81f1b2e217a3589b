"""`elmo serve` as a process: start, errors before it listens, signals, API keys and logs."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from in_process_cli import run_in_process
from live_server import PATIENCE_S

from elmo.cli.serve import read_api_keys
from elmo.errors import ConfigError, DataError
from elmo.serve.settings import usable_cores

ROOT = Path(__file__).parents[2]
# without what `import elmo` has set for this process, where torch may have been imported before
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "KMP_"))}


@contextlib.contextmanager
def started_server(*options, env=None, stderr=subprocess.DEVNULL):
    command = [sys.executable, "-m", "elmo", "serve", "--model", "tiny-random", "--port", "0", "--json", *options]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=stderr, text=True, env={**ENVIRONMENT, **(env or {})}
    )
    try:
        yield process, json.loads(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def ask(port, method="GET", path="/healthz", value=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    with contextlib.closing(connection):
        body = None if value is None else json.dumps(value)
        connection.request(method, path, body, {"content-type": "application/json", **headers})
        response = connection.getresponse()
        return response.status, response.read()


def is_listening(port):
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def port_of(facts):
    return int(facts["url"].rsplit(":", 1)[1])


def test_sigterm_answers_all_requests_in_flight_and_exits_with_0():
    with started_server("--threads", "1") as (process, facts):
        port = port_of(facts)
        started = threading.Barrier(51)

        def client(_):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
            with contextlib.closing(connection):
                body = json.dumps({"texts": ["word " * 1200]})
                connection.request("POST", "/embed", body, {"content-type": "application/json"})
                started.wait()
                return connection.getresponse().status

        with ThreadPoolExecutor(50) as pool:
            futures = [pool.submit(client, n) for n in range(50)]
            started.wait()
            counted = 0  # requests that the server has begun to handle
            while counted < 50:
                lines = ask(port, path="/metrics")[1].decode().splitlines()
                done = sum(float(line.rsplit(" ", 1)[1]) for line in lines if 'total{route="/embed"' in line)
                tokens = next(float(line.split()[1]) for line in lines if line.startswith("elmo_queue_tokens "))
                counted = done + round(tokens / 1200)
            process.send_signal(signal.SIGTERM)
            assert [future.result() for future in futures] == [200] * 50
        assert process.wait(PATIENCE_S) == 0
        with pytest.raises(ConnectionError):
            ask(port)
        assert not any(psutil.pid_exists(pid) for pid in facts["worker_pids"])


def test_second_sigterm_exits_at_once_and_leaves_no_worker(tmp_path):
    with started_server("--threads", "1") as (process, facts):
        port = port_of(facts)
        with socket.create_connection(("127.0.0.1", port)) as connection:  # a request that is never complete
            head = b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            connection.sendall(head + b"Content-Length: 100\r\n\r\n")
            while b"elmo_queue" not in ask(port, path="/metrics")[1]:
                pass
            process.send_signal(signal.SIGTERM)
            while is_listening(port):
                pass
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM
        psutil.wait_procs([psutil.Process(p) for p in facts["worker_pids"] if psutil.pid_exists(p)], timeout=PATIENCE_S)
        assert not any(psutil.pid_exists(pid) for pid in facts["worker_pids"])


def test_killed_server_leaves_no_worker_and_its_port_is_free_again():
    with started_server() as (process, facts):
        workers = [psutil.Process(pid) for pid in facts["worker_pids"]]
        process.kill()
        process.wait()
        _, alive = psutil.wait_procs(workers, timeout=PATIENCE_S)
        assert not alive
    with started_server("--port", str(port_of(facts))) as (_, again):
        assert again["url"] == facts["url"]
        assert ask(port_of(again))[0] == 200


def test_api_key_is_needed_and_never_logged(tmp_path):
    keys, log = tmp_path / "keys", tmp_path / "log"
    keys.write_text("first-key\nsecond-key\n")
    secret = "a-sentence-that-must-not-be-logged"
    with log.open("w") as stderr:
        options = ("--api-key-file", str(keys), "--log-requests")
        with started_server(*options, env={"ELMO_API_KEY": "third-key"}, stderr=stderr) as (_, facts):
            port = port_of(facts)

            def status(path="/embed", **headers):
                return ask(port, "POST", path, {"texts": [secret]}, **headers)[0]

            assert [status(authorization=f"Bearer {key}-key") for key in ("first", "second", "third")] == [200] * 3
            assert status(**{"x-api-key": "first-key"}) == 200
            assert status() == status(authorization="Bearer first-ke") == status(authorization="Basic first-key") == 401
            assert status(authorization="Bearer ") == status(authorization="Bearer first-key2") == 401
            assert status(f"/{secret}", authorization="Bearer first-key") == 404
            assert ask(port, path="/metrics")[0] == ask(port, path="/v1/models")[0] == 401
            assert [ask(port, path=path)[0] for path in ("/healthz", "/readyz", "/openapi.json")] == [200] * 3
    written = log.read_text()
    assert "/embed 200" in written
    assert "/embed 401" in written or "other 401" in written
    assert not [word for word in (secret, "-key") if word in written]


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--model", "no-such-model"), 1, "no-such-model"),
        (("--workers", "0"), 2, "--workers"),
        (("--port", "70000"), 2, "--port"),
        (("--host", "no.such.host.invalid"), 2, "no.such.host.invalid"),
        (("--timeout", "0"), 2, "timeout is 0"),
        (("--max-tokens", "100000"), 2, "--queue-tokens"),
        (("--api-key-file", "missing"), 1, "missing"),
        (("--bank", "missing.txt"), 1, "missing.txt"),
        (("--dtype", "float12"), 2, "float12"),
        (("--tokenizer", "nonsense"), 2, "nonsense"),
    ],
)
def test_wrong_option_is_one_clear_error(capsys, tmp_path, monkeypatch, options, code, words):
    monkeypatch.chdir(tmp_path)
    done = run_in_process(capsys, "serve", "--port", "0", "--model", "tiny-random", *options)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_api_keys_are_read_also_after_a_byte_order_mark(tmp_path, monkeypatch):
    monkeypatch.setenv("ELMO_API_KEY", "first")
    (tmp_path / "keys.txt").write_bytes(b"\xef\xbb\xbfsecond\r\n\r\n third \r\n")
    assert read_api_keys(tmp_path / "keys.txt") == ("first", "second", "third")


def test_error_of_an_api_key_names_its_place_and_not_the_key(tmp_path, monkeypatch):
    (tmp_path / "keys.txt").write_text("good\n\n# of the team\n")
    with pytest.raises(ConfigError, match=r"keys\.txt, line 3: expected an API key") as caught:
        read_api_keys(tmp_path / "keys.txt")
    assert "team" not in str(caught.value)
    monkeypatch.setenv("ELMO_API_KEY", "secret\n")
    with pytest.raises(ConfigError, match="ELMO_API_KEY: expected"):
        read_api_keys(None)


def test_file_without_keys_is_refused_also_beside_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("ELMO_API_KEY", "first")
    (tmp_path / "keys.txt").write_text("\n")
    with pytest.raises(DataError, match="holds no key"):
        read_api_keys(tmp_path / "keys.txt")


def test_port_in_use_is_reported_before_the_model_is_loaded(capsys):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = run_in_process(capsys, "serve", "--port", str(port), "--model", "no-such-model")
    assert done.returncode == 1
    assert f"Port {port}" in done.stderr
    assert "no-such-model" not in done.stderr


def test_port_below_1024_without_permission_is_one_clear_error():
    first_free = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
    if not first_free.exists() or int(first_free.read_text()) <= 80:
        pytest.skip("every user may listen on port 80 here")
    command = [sys.executable, "-m", "elmo", "serve", "--port", "80", "--model", "no-such-model"]
    if os.geteuid() == 0:  # root without the permission for low ports
        if shutil.which("setpriv") is None:
            pytest.skip("root may listen on every port, and setpriv is not on this machine")
        command = ["setpriv", "--bounding-set=-net_bind_service", "--inh-caps=-net_bind_service", *command]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("elmo: Port 80 of 127.0.0.1 may not be used by this user.\n")
    assert "Traceback" not in done.stderr
    assert "no-such-model" not in done.stderr


def test_workers_divide_the_cores_and_wait_without_spinning():
    with started_server("--workers", "2") as (_, facts):
        assert facts["num_threads"] == max(1, usable_cores() // 2)
        assert len(set(facts["worker_pids"])) == 2
        for pid in facts["worker_pids"]:  # the OpenMP library reads its environment when torch is imported
            assert psutil.Process(pid).environ()["OMP_WAIT_POLICY"] == "PASSIVE"


def test_empty_bank_and_key_file_are_refused(capsys, tmp_path):
    empty = tmp_path / "empty"
    empty.write_text("\n")
    for option in ("--bank", "--api-key-file"):
        done = run_in_process(capsys, "serve", "--port", "0", option, str(empty))
        assert done.returncode == 1
        assert str(empty) in done.stderr


def test_front_process_imports_no_torch():
    code = "import sys, elmo.serve.server, elmo.cli.serve; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
