"""The console as a server: the thread that reads the log, and uvicorn, until it should end."""

import asyncio
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import uvicorn
from starlette.types import ASGIApp

from seamlessflow.console.log.audit_child import AuditChild, AuditCommand
from seamlessflow.console.log.follower import Follower
from seamlessflow.console.log.lag_watch import LagWatch
from seamlessflow.console.log.lookup import RawDecoder, RecordLookup
from seamlessflow.console.log.run_log import RunLog
from seamlessflow.console.models.course import Course
from seamlessflow.console.models.surroundings import Surroundings
from seamlessflow.console.web.app import application
from seamlessflow.console.web.console import Console, RunBeside, ShownRun
from seamlessflow.console.web.guard import TOKEN, is_loopback
from seamlessflow.console.web.live import Broadcaster
from seamlessflow.console.web.timeline_pages import timeline_data
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.network.addresses import address_of
from seamlessflow.infra.process import collect_seldom
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import CONTROL

LEAST_TOKEN = 16
_LOOK_S = 0.2
_CLOSE_S = 2
_BACKLOG = 64
_GC_THRESHOLDS = (10_000, 10, 1_000)
"""Numbers for `gc.set_threshold`: a collection over all copies would hold pages up for 0.4 s."""


class ConsoleAddressTaken(SeamlessFlowError):
    """Failure to listen on a console's address."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        self.host = host
        self.port = port
        super().__init__(f"cannot listen on {host} port {port} (--host, --port): {reason}")


class TokenRejected(SeamlessFlowError):
    """A token file that protects nothing: unreadable, or with too short a token."""

    lasting = True

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        super().__init__(f"--token-file {path}: {reason}")


class _QuietServer(uvicorn.Server):
    """A uvicorn server that leaves signals to its caller."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Thread(Protocol):
    def start(self) -> None: ...
    def close(self) -> None: ...


def token_for(host: str, path: Path | None) -> str | None:
    """Return the token in a file, or a new one; None for a host that only this machine reaches.

    Raises `TokenRejected`.
    """
    if path is None:
        return None if is_loopback(host) else secrets.token_urlsafe(24)
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise TokenRejected(path, str(error)) from error
    if len(token) < LEAST_TOKEN:
        raise TokenRejected(path, f"a token has {LEAST_TOKEN} characters or more")
    return token


def run_beside(
    kafka: KafkaSettings, name: str, skipped: Skipped, stopping: Callable[[], bool]
) -> RunBeside:
    """Return another run by name, from its `control`. Raises what `read_topic` raises."""
    course = Course()
    records: list[Record] = []
    for item in read_topic(kafka, CONTROL, skipped, stopping=stopping):
        course.note(item)
        records.append(item.record)
    return RunBeside(course, timeline_data(records, name))


def listener(host: str, port: int) -> socket.socket:
    """Return a socket that listens on this host and port. Raises `ConsoleAddressTaken`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(_BACKLOG)  # a client that comes before the server runs waits for it
    except OSError as error:
        listening.close()
        raise ConsoleAddressTaken(host, port, error.strerror or str(error)) from error
    return listening


def address(listening: socket.socket, token: str | None) -> str:
    """Return the address to open, with the token if there is one."""
    host, port = listening.getsockname()[:2]
    base = f"http://{address_of(host, port)}/"
    return base if token is None else f"{base}?{TOKEN}={token}"


def serve(
    kafka: KafkaSettings,
    listening: socket.socket,
    host: str,
    token: str | None,
    run: ShownRun,
    stopping: Callable[[], bool],
    audited: AuditCommand | None = None,
) -> None:
    """Read the log and serve its pages until `stopping`, with an audit's state if there is one."""
    collect_seldom(_GC_THRESHOLDS)
    lookup = RecordLookup(kafka)
    run_log = RunLog(lookup, RawDecoder(kafka))
    broadcaster = Broadcaster()
    follower = Follower(kafka, run_log, broadcaster.changed)
    watch = LagWatch(kafka, run.groups, run_log.index)
    audit = AuditChild(audited, broadcaster.changed) if audited else None

    def around() -> Surroundings:
        return Surroundings(groups=watch.state(), audit=audit.state() if audit else None)

    console = Console(run_log, lambda: follower.following, run, around)
    app = application(console, broadcaster, host, token)
    threads: list[_Thread] = [follower, watch, *([audit] if audit else [])]
    for thread in threads:
        thread.start()
    try:
        asyncio.run(run_server(app, listening, stopping, broadcaster.close))
    finally:
        for thread in reversed(threads):
            thread.close()
        lookup.close()


async def run_server(
    app: ASGIApp,
    listening: socket.socket,
    stopping: Callable[[], bool],
    ending: Callable[[], None],
) -> None:
    """Serve an application until `stopping`; then call `ending`, which ends its streams."""
    config = uvicorn.Config(
        app,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_CLOSE_S,
    )
    server = _QuietServer(config)
    serving = asyncio.create_task(server.serve([listening]))
    while not stopping() and not serving.done():
        await asyncio.wait({serving}, timeout=_LOOK_S)
    ending()
    server.should_exit = True
    await serving
