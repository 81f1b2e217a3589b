"""Hostile and broken requests: each has an answer of the 4xx kind with a JSON error, and the server goes on."""

from __future__ import annotations

import gzip
import json
import random

import pytest
from live_server import live_server
from served_models import load_tiny

from elmo.errors import ConfigError
from elmo.serve.middleware import host_is_allowed
from elmo.serve.settings import ServeSettings

GOOD = {"texts": ["The bank of the river ."]}


def check_error(answer, *statuses):
    assert answer.status in statuses, answer.body
    assert answer.headers["content-type"] == "application/json"
    assert {"code", "message", "field", "id"} <= set(answer.error)
    assert answer.error["id"] == answer.headers["x-request-id"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b"{", 400),
        (b"not json", 400),
        (b"[" * 100_000 + b"]" * 100_000, 400),
        (b'{"texts": ' + b"[" * 30 + b"]" * 30 + b"}", 400),
        (b'{"texts": ["a"], "gamma": 1e400}', 400),
        (b'{"texts": ["a"], "gamma": NaN}', 400),
        (b'{"texts": ["a"], "gamma": -Infinity}', 400),
        (b'{"texts": ["a"], "texts": ["b"]}', 400),
        (b'{"texts": ["a"], "layers": ' + b"9" * 5000 + b"}", 400),
        (b'\xef\xbb\xbf{"texts": ["a"]}', 400),
        ('{"texts": ["a"]}'.encode("utf-16"), 400),
        (b'{"texts": ["\xff"]}', 400),
        (b'{"texts": "a"}', 422),
        (b'{"texts": []}', 422),
        (b'{"texts": {"a": 1}}', 422),
        (b'{"texts": ["a"], "unknown": 1}', 422),
        (b'{"texts": ["a"], "layers": "bottom"}', 422),
        (b'{"texts": ["a"], "layers": 3}', 422),
        (b'{"texts": ["a"], "layers": []}', 422),
        (b'{"texts": ["a"], "layers": [0, 0]}', 422),
        (b'{"texts": ["a"], "layers": 1.5}', 422),
        (b'{"texts": ["a"], "layers": true}', 422),
        (b'{"texts": ["a"], "layers": "mix"}', 422),
        (b'{"texts": ["a"], "layers": "mix", "weights": [1]}', 422),
        (b'{"texts": ["a"], "layers": "mix", "weights": [1, 1, 1e300]}', 422),
        (b'{"texts": ["a"], "weights": [1, 1, 1]}', 422),
        (b'{"texts": ["a"], "gamma": 2}', 422),
        (b'{"texts": ["a"], "tokenize": 1}', 422),
        (b'{"texts": ["a"], "encoding": "\\ud800"}', 422),
        (b'{"\\ud800": 1, "texts": ["a"]}', 422),
        (b'{"texts": [' + b'"a",' * 1024 + b'"a"]}', 422),
        (json.dumps({"texts": ["word " * 9000]}).encode(), 422),
        (b'"text"', 422),
        (b"null", 422),
        (b"17", 422),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_malformed_body_is_refused_with_a_json_error(tiny_server, body, status):
    check_error(tiny_server.post("/embed", body), status)


def test_two_million_tokens_are_refused_before_they_are_read(tiny_server):
    check_error(tiny_server.post("/embed", {"texts": ["a " * 2_000_000]}), 413)


def test_lone_surrogates_become_the_replacement_character(tiny_server):
    answer = tiny_server.post("/embed", b'{"texts": ["a \\ud800 b", ["\\udfff"], "\\ud83d\\ude00"]}')
    assert answer.status == 200
    tokens = [item["tokens"] for item in answer.json()["items"]]
    assert tokens == [["a", "\ufffd", "b"], ["\ufffd"], ["\U0001f600"]]
    check_error(tiny_server.post("/v1/embeddings", b'{"input": "a", "model": "\\ud800"}'), 404)
    assert tiny_server.post("/similar", b'{"text": "\\ud800", "token": 0}').status == 200


ODD_TEXTS = [
    "\x00",
    "\u2028\x0b\x85",
    "e" + "\u0301" * 1000,
    "x" * 100_000,
    "👩‍👩‍👧‍👦 🇩🇪",
    "<S> </S> <UNK>",
]


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_odd_text_has_finite_vectors_and_exact_offsets(tiny_server, text):
    (item,) = tiny_server.post("/embed", {"texts": [text]}).json()["items"]
    assert [text[start:end] for start, end in item["offsets"]] == item["tokens"]
    assert len(item["layers"]["average"]) == len(item["tokens"])


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"input": [], "model": "tiny"}, 400),
        ({"input": "", "model": "tiny"}, 400),
        ({"input": ["a", "  "], "model": "tiny"}, 400),
        ({"input": [1, 2], "model": "tiny"}, 400),
        ({"input": [[1, 2]], "model": "tiny"}, 400),
        ({"input": None, "model": "tiny"}, 400),
        ({"input": "a", "model": "../../etc/passwd"}, 404),
        ({"input": "a"}, 422),
        ({"input": "a", "model": "tiny", "dimensions": 64}, 400),
        ({"input": "a", "model": "tiny", "encoding_format": "hex"}, 422),
        ({"input": "a", "model": "tiny", "layers": "all"}, 422),
    ],
)
def test_openai_requests_that_cannot_be_answered(tiny_server, body, status):
    answer = tiny_server.post("/v1/embeddings", body)
    check_error(answer, status)
    assert answer.error["type"] == "invalid_request_error"
    assert answer.error["param"] == answer.error["field"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/similar", {"text": "a b", "token": 2}),
        ("/similar", {"text": "a b", "token": -1}),
        ("/similar", {"text": 5, "token": 0}),
        ("/similar", {"text": "a", "token": 0, "layer": 3}),
        ("/similar", {"text": "a", "token": 0, "layer": 1, "weights": [1, 1, 1]}),
        ("/similar", {"text": "a", "token": 0, "top": 101}),
        ("/substitutes", {"texts": ["a"], "top": 0}),
        ("/substitutes", {"texts": ["a"], "top": 101}),
        ("/score", {"texts": ["a"], "top": 3}),
    ],
)
def test_values_out_of_range_are_refused(tiny_server, path, body):
    check_error(tiny_server.post(path, body), 422)


def test_content_type_and_encoding_are_checked(tiny_server):
    body = json.dumps(GOOD).encode()
    check_error(tiny_server.request("POST", "/embed", body), 415)
    check_error(tiny_server.post("/embed", body, content_type="text/plain"), 415)
    check_error(tiny_server.post("/embed", gzip.compress(b" " * 10_000_000), content_encoding="gzip"), 415)
    assert tiny_server.post("/embed", body, content_type="application/json; charset=utf-8").status == 200


def test_body_limit_is_exact_with_and_without_a_declared_length():
    with live_server(load_tiny, max_body=1000, max_texts=1000) as server:
        for size, status in ((1000, 200), (1001, 413)):
            body = json.dumps(GOOD).encode().ljust(size)
            assert server.post("/embed", body).status == status
            chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:600], body[600:]))
            head = b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
            answer = server.raw(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 %d" % status)
        declared = head + b"Content-Length: 99999999999999999999999\r\n\r\n"
        assert server.raw(declared)[:12] in (b"HTTP/1.1 413", b"HTTP/1.1 400")


def test_large_headers_are_refused(tiny_server):
    answer = tiny_server.raw(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 200_000 + b"\r\n\r\n")
    assert answer[:9] == b"HTTP/1.1 "
    assert answer[9:12] in (b"400", b"431")


@pytest.mark.parametrize(("target", "header"), [(b"/healthz", b"a" * 17_000), (b"/healthz?" + b"a" * 17_000, b"")])
def test_large_headers_are_refused_also_if_they_arrive_at_once(tiny_server, target, header):
    answer = tiny_server.raw(b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\nX: " + header + b"\r\n\r\n")
    assert answer[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 431")


@pytest.mark.parametrize(("method", "path"), [("POST", "/embed/"), ("GET", "/healthz/")])
def test_path_with_a_slash_at_its_end_is_not_redirected(tiny_server, method, path):
    answer = tiny_server.request(method, path, b'{"texts": ["a"]}', {"content-type": "application/json"})
    check_error(answer, 404)


@pytest.mark.parametrize(
    "path",
    [
        "/static/..%2f..%2f..%2fetc%2fpasswd", "/static/../schemas.py", "/static/%2e%2e/app.py",
        "/..%2f..%2fetc/passwd", "/static//etc/passwd", "/static/%00", "/static/a%00.js", "/static/....//app.py",
        "/static/\\..\\app.py", "/%ff",
    ],
)  # fmt: skip
def test_paths_outside_the_page_are_not_found(tiny_server, path):
    check_error(tiny_server.get(path), 404)


def test_links_out_of_the_static_folder_are_not_served(tmp_path):
    from elmo.serve.routes_status import static_files

    (tmp_path / "page.js").write_text("1")
    (tmp_path / "secret.txt").symlink_to("/etc/passwd")
    (tmp_path / "program.py").write_text("1")
    assert set(static_files(tmp_path)) == {"page.js"}


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "a b", "localhost/..", "<script>", ""])
def test_host_of_another_site_is_refused_on_loopback(tiny_server, host):
    check_error(tiny_server.get("/healthz", host=host), 400)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:80", "[::1]:8000", "LOCALHOST"])
def test_host_of_this_machine_is_accepted(tiny_server, host):
    assert tiny_server.get("/healthz", host=host).status == 200


def test_host_that_is_allowed_and_this_machine_are_accepted_and_others_are_not():
    for host in ("127.0.0.1", "0.0.0.0"):
        settings = ServeSettings(host=host, allowed_hosts=("elmo.example", "10.0.0.7", "[fe80::1]"))
        for name in ("elmo.example", "ELMO.example:8000", "10.0.0.7:8000", "[fe80::1]:80"):
            assert host_is_allowed(name, settings), name
        for name in ("localhost:8000", "127.0.0.1"):  # health checks of a container
            assert host_is_allowed(name, settings), name
        assert not host_is_allowed("evil.example", settings)


@pytest.mark.parametrize(
    "name", ["elmo.example:8000", "https://elmo.example", "*", "*.example", "", "fe80::1", "[fe80::1]:80", "a b", "a/b"]
)
def test_allowed_host_that_no_request_can_have_is_refused(name):
    with pytest.raises(ConfigError, match=r"allowed.host.*expected a name"):
        ServeSettings(allowed_hosts=("localhost", name))


def test_answers_carry_security_headers_and_no_cors(tiny_server):
    for answer in (tiny_server.get("/healthz", origin="https://evil.example"), tiny_server.get("/nothing")):
        assert "script-src 'self'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert not [name for name in answer.headers if name.startswith("access-control-")]
    assert tiny_server.request("OPTIONS", "/embed").status == 405


def test_markup_in_a_request_comes_back_as_json_only(tiny_server):
    markup = "<script>alert(1)</script>"
    for body in ({"texts": ["a"], markup: 1}, {"texts": ["a"], "layers": markup}, {"texts": [markup]}):
        answer = tiny_server.post("/embed", body)
        assert answer.headers["content-type"] == "application/json"


def test_request_id_is_kept_if_it_is_harmless(tiny_server):
    assert tiny_server.get("/healthz", **{"x-request-id": "abc-1"}).headers["x-request-id"] == "abc-1"
    assert tiny_server.get("/healthz", **{"x-request-id": "a b<>"}).headers["x-request-id"] != "a b<>"


def mutated_requests(seed: int, count: int):
    """Valid requests with random damage to their bytes or values."""
    generator = random.Random(seed)
    valid = [
        ("/embed", {"texts": ["The cat", ["a", "b"]], "layers": "all", "encoding": "base64"}),
        ("/embed", {"texts": ["The cat"], "layers": "mix", "weights": [1, 2, 3], "gamma": 0.5}),
        ("/v1/embeddings", {"input": ["The cat"], "model": "tiny", "encoding_format": "float"}),
        ("/score", {"texts": ["The cat"], "tokenize": True}),
        ("/substitutes", {"texts": ["The cat"], "top": 2}),
        ("/similar", {"text": "The cat", "token": 1, "layer": 2, "top": 3}),
    ]
    odd = [None, True, -1, 2**70, 0.5, "", "\ud800", "x" * 300, "all", "mix"]
    odd += [[], {}, [[["a"]]], {"a": {"b": 1}}, ["a", 1]]
    for _ in range(count):
        path, value = generator.choice(valid)
        value = dict(value)
        for _ in range(generator.randrange(3)):
            value[generator.choice([*value, "extra"])] = generator.choice(odd)
        body = bytearray(json.dumps(value).encode())
        for _ in range(generator.choice((0, 0, 1, 5))):
            body[generator.randrange(len(body))] = generator.randrange(256)
        yield path, bytes(body)


def test_random_damage_never_causes_a_server_error(tiny_server):
    statuses = [tiny_server.post(path, body).status for path, body in mutated_requests(1, 250)]
    assert set(statuses) <= {200, 400, 404, 415, 422}
    assert statuses.count(200) > 10
    assert tiny_server.get("/healthz").status == 200
    assert tiny_server.metric("elmo_worker_restarts_total") == 0


@pytest.mark.slow
def test_two_thousand_damaged_requests_never_cause_a_server_error(tiny_server):
    statuses = {tiny_server.post(path, body).status for path, body in mutated_requests(2, 2000)}
    assert statuses <= {200, 400, 404, 415, 422}
