"""A local server with the endpoints of the Hugging Face Hub that huggingface_hub calls to download and to upload.

Small files are part of a commit, large ones (.safetensors and .xz) are uploaded by Git LFS first, as on the hub.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_secret"
LARGE = (".safetensors", ".xz")


@dataclass
class Hub:
    """Repositories: name -> revision (branch or commit) -> path -> contents."""

    address: str = ""
    repos: dict[str, dict[str, dict[str, bytes]]] = field(default_factory=dict)
    heads: dict[tuple[str, str], str] = field(default_factory=dict)  # repository, branch -> commit
    objects: dict[str, bytes] = field(default_factory=dict)  # of Git LFS, by sha256
    requests: list[str] = field(default_factory=list)
    status: int | None = None  # the answer to every request

    def commit(self, repo: str, files: dict[str, bytes], branch: str = "main") -> str:
        """Makes a commit; a new repository is created."""
        sha = hashlib.sha1(repr((repo, branch, sorted(files.items()))).encode()).hexdigest()
        self.repos.setdefault(repo, {}).update({branch: files, sha: files})
        self.heads[repo, branch] = self.heads[repo, sha] = sha
        return sha


@contextmanager
def serve_hub() -> Iterator[Hub]:
    """Runs the hub on a free port of this machine until the end of the block."""
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._answer("GET")

    def do_HEAD(self) -> None:
        self._answer("HEAD")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_PUT(self) -> None:
        self._answer("PUT")

    def _answer(self, method: str) -> None:
        path = urlsplit(self.path).path  # a revision may contain an escaped slash
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.hub.requests.append(f"{method} {path}")
        if self.hub.status is not None:
            self._json({"error": "unavailable"}, status=self.hub.status)
            return
        is_read = method in ("GET", "HEAD")
        if not is_read and not path.startswith("/lfs/") and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._json({"error": "Invalid username or password."}, status=401)
            return
        for pattern, answer in (_READS if is_read else _WRITES).items():
            match = re.fullmatch(pattern, path)
            if match:
                answer(self, *map(unquote, match.groups()), *([] if is_read else [body]))
                return
        self._json({"error": f"{method} {path} is unknown"}, status=404)

    def _files(self, repo: str, revision: str) -> dict[str, bytes] | None:
        """The files of a revision; None after an answer that says what does not exist."""
        if repo not in self.hub.repos:
            self._json({"error": "Repository not found"}, status=404, headers={"X-Error-Code": "RepoNotFound"})
            return None
        if revision not in self.hub.repos[repo]:
            self._json({"error": "Invalid rev id"}, status=404, headers={"X-Error-Code": "RevisionNotFound"})
            return None
        return self.hub.repos[repo][revision]

    def info(self, repo: str, revision: str = "main") -> None:
        files = self._files(repo, revision)
        if files is not None:
            siblings = [{"rfilename": name} for name in files]
            facts = {"id": repo, "modelId": repo, "sha": self.hub.heads[repo, revision], "siblings": siblings}
            self._json({**facts, "private": False, "tags": [], "downloads": 0, "likes": 0})

    def tree(self, repo: str, revision: str) -> None:
        files = self._files(repo, revision)
        if files is not None:
            self._json([_entry(name, data) for name, data in files.items()])

    def file(self, repo: str, revision: str, name: str) -> None:
        files = self._files(repo, revision)
        if files is None:
            return
        if name not in files:
            self._json({"error": "Entry not found"}, status=404, headers={"X-Error-Code": "EntryNotFound"})
            return
        entry = _entry(name, files[name])
        headers = {"X-Repo-Commit": self.hub.heads[repo, revision], "ETag": f'"{entry["oid"]}"'}
        if "lfs" in entry:
            headers |= {"X-Linked-Etag": f'"{entry["lfs"]["oid"]}"', "X-Linked-Size": str(entry["size"])}
        self._send(files[name], headers=headers)

    def create(self, body: bytes) -> None:
        facts = json.loads(body)
        repo = f"{facts['organization']}/{facts['name']}"
        if repo in self.hub.repos:
            self._json({"error": "You already created this model repo", "url": f"{self.hub.address}/{repo}"}, 409)
            return
        self.hub.commit(repo, {".gitattributes": b""})
        self._json({"url": f"{self.hub.address}/{repo}", "name": repo, "id": repo})

    def branch(self, repo: str, name: str, _: bytes) -> None:
        self.hub.commit(repo, dict(self.hub.repos[repo]["main"]), branch=name)
        self._json({})

    def validate(self, body: bytes) -> None:
        is_card = json.loads(body)["content"].startswith("---\n")
        self._json({"errors": [] if is_card else [{"message": "no metadata"}], "warnings": []}, 200 if is_card else 400)

    def preupload(self, repo: str, revision: str, body: bytes) -> None:
        if self._files(repo, revision) is not None:
            names = [file["path"] for file in json.loads(body)["files"]]
            modes = {name: "lfs" if name.endswith(LARGE) else "regular" for name in names}
            files = [{"path": n, "uploadMode": mode, "shouldIgnore": False, "oid": None} for n, mode in modes.items()]
            self._json({"files": files})

    def batch(self, repo: str, body: bytes) -> None:
        objects = []
        for item in json.loads(body)["objects"]:
            upload = {"upload": {"href": f"{self.hub.address}/lfs/{item['oid']}", "header": {}}}
            objects.append({**item, **({} if item["oid"] in self.hub.objects else {"actions": upload})})
        self._json({"transfer": "basic", "objects": objects})

    def upload(self, oid: str, body: bytes) -> None:
        assert hashlib.sha256(body).hexdigest() == oid
        self.hub.objects[oid] = body
        self._send(b"")

    def commit(self, repo: str, revision: str, body: bytes) -> None:
        files = dict(self.hub.repos[repo][revision])
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.hub.objects[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        sha = self.hub.commit(repo, files, branch=revision)
        url = f"{self.hub.address}/{repo}/commit/{sha}"
        self._json({"success": True, "commitOid": sha, "commitUrl": url, "hookOutput": ""})

    def _json(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self._send(json.dumps(value).encode(), status, {"Content-Type": "application/json", **(headers or {})})

    def _send(self, data: bytes, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _entry(name: str, data: bytes) -> dict[str, Any]:
    oid = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    entry: dict[str, Any] = {"type": "file", "path": name, "oid": oid, "size": len(data)}
    if name.endswith(LARGE):
        entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
    return entry


_REPO, _REVISION = "([^/]+/[^/]+)", "([^/]+)"
_READS = {
    f"/api/models/{_REPO}": _Handler.info,
    f"/api/models/{_REPO}/revision/{_REVISION}": _Handler.info,
    f"/api/models/{_REPO}/tree/{_REVISION}": _Handler.tree,
    f"/{_REPO}/resolve/{_REVISION}/(.+)": _Handler.file,
}
_WRITES = {
    "/api/repos/create": _Handler.create,
    "/api/validate-yaml": _Handler.validate,
    f"/api/models/{_REPO}/branch/{_REVISION}": _Handler.branch,
    f"/api/models/{_REPO}/preupload/{_REVISION}": _Handler.preupload,
    f"/api/models/{_REPO}/commit/{_REVISION}": _Handler.commit,
    f"/{_REPO}\\.git/info/lfs/objects/batch": _Handler.batch,
    "/lfs/([0-9a-f]+)": _Handler.upload,
}
