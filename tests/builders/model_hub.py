"""A model hub on this machine: the API that `huggingface_hub` speaks, over HTTP on loopback."""

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import cast
from urllib.parse import unquote, urlsplit

COMMIT = "c0ffee" * 6 + "c0ff"
LATER = "decade" * 6 + "deca"
"""Commits, an earlier and a later one."""


@dataclass
class Repository:
    """The files of a model at each commit, and where its branches and tags stand."""

    commits: dict[str, Mapping[str, bytes]]
    branches: dict[str, str] = field(default_factory=lambda: {"main": COMMIT})
    gated: bool = False
    token: str = ""
    """The token that it asks for; none if it is empty."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Sizes that the hub lists instead of the real ones."""


@dataclass
class Hub:
    """A hub that is under way."""

    url: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    silent: bool = False
    """True if it accepts connections, and never answers."""
    cut: dict[str, int] = field(default_factory=dict)
    """Bytes behind which the next download of a file breaks off, for each time that it does."""
    always_cut: bool = False
    requests: list[str] = field(default_factory=list)
    asked: threading.Event = field(default_factory=threading.Event)
    """Set by the first request."""
    ended: threading.Event = field(default_factory=threading.Event)

    def serve(self, name: str, directory: Path, commit: str = COMMIT) -> Repository:
        """Serve the files of a directory as the model `name`."""
        files = {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}
        self.repositories[name] = Repository({commit: files}, {"main": commit})
        return self.repositories[name]


def snapshot_directory(cache: Path, name: str, commit: str = COMMIT) -> Path:
    """Return the place of a model in the cache of the hub's library."""
    return cache / f"models--{name.replace('/', '--')}" / "snapshots" / commit


@contextmanager
def model_hub() -> Iterator[Hub]:
    """Yield a hub that serves until the end."""
    hub = Hub()
    server = _Server(hub)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.ended.set()
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    """A server of one hub, on a free port of loopback."""

    daemon_threads = True

    def __init__(self, hub: Hub) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.hub = hub


class _Answers(BaseHTTPRequestHandler):
    """Answers of the hub."""

    protocol_version = "HTTP/1.1"

    @property
    def hub(self) -> Hub:
        """The hub that answers."""
        return cast(_Server, self.server).hub

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def do_HEAD(self) -> None:
        """Answer with the facts of a file."""
        self._answer()

    def do_GET(self) -> None:
        """Answer with a model's files, or a file."""
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        asked = f"{self.command} {path} {self.headers.get('range', '')}"
        self.hub.requests.append(asked.strip())
        self.hub.asked.set()
        if self.hub.silent:
            self.hub.ended.wait()
            return
        listing = path.startswith("/api/models/")
        owner, name, *rest = path.removeprefix("/api/models/").strip("/").split("/")
        repository = self.hub.repositories.get(f"{owner}/{name}")
        if repository is None or self._unknown_to(repository):
            self._refuse(401, "" if repository is None else "RepoNotFound")
        elif repository.gated and not listing:
            self._refuse(403, "GatedRepo")
        else:
            revision, _, file = "/".join(rest[1:]).partition("/")
            commit = repository.branches.get(revision, revision)
            if commit not in repository.commits:
                self._refuse(404, "RevisionNotFound")
            elif listing:
                self._list(f"{owner}/{name}", commit, repository)
            else:
                self._send(commit, file, repository.commits[commit][file])

    def _unknown_to(self, repository: Repository) -> bool:
        asked = self.headers.get("authorization", "")
        return bool(repository.token) and asked != f"Bearer {repository.token}"

    def _list(self, name: str, commit: str, repository: Repository) -> None:
        sizes = {file: len(content) for file, content in repository.commits[commit].items()}
        sizes |= repository.sizes
        siblings = [{"rfilename": file, "size": size} for file, size in sizes.items()]
        body = json.dumps({"id": name, "sha": commit, "siblings": siblings}).encode()
        self._begin(200, {"content-type": "application/json"}, len(body))
        self.wfile.write(body)

    def _send(self, commit: str, file: str, content: bytes) -> None:
        etag = hashlib.sha256(content).hexdigest()
        start = int(self.headers.get("range", "bytes=0-")[len("bytes=") :].rstrip("-"))
        headers = {"etag": f'"{etag}"', "x-repo-commit": commit}
        if start:
            headers["content-range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self._begin(206 if start else 200, headers, len(content) - start)
        if self.command == "HEAD":
            return
        behind = self._cut(file)
        self.wfile.write(content[start:] if behind is None else content[start:behind])
        if behind is not None:
            self.close_connection = True

    def _cut(self, file: str) -> int | None:
        cut = self.hub.cut
        return cut.get(file) if self.hub.always_cut else cut.pop(file, None)

    def _refuse(self, status: int, code: str) -> None:
        self._begin(status, {"x-error-code": code} if code else {}, 0)

    def _begin(self, status: int, headers: Mapping[str, str], length: int) -> None:
        self.send_response(status)
        for name, value in {**headers, "content-length": str(length)}.items():
            self.send_header(name, value)
        self.end_headers()
