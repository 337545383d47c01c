"""A trajectory manager that answers as a test scripts it, and a gateway process to test."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import httpx
import orjson

from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader import Reader, ReadingRules
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.network.addresses import free_port
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.producers.gateway.calls.keys import Keys, derived_admin_key
from seamlessflow.schemas.records import (
    CommandAnswered,
    CountTokens,
    DescribeSession,
    OpenSession,
    Record,
    ReplyAddress,
    ReplyDelta,
    ReplyFinished,
    RequestTurn,
)
from seamlessflow.schemas.topics import FLEET, REPLIES, REQUESTS
from tests import http
from tests.builders.own_topics import SMALL, small
from tests.builders.schemas.made_up import decode
from tests.paths import ROOT
from tests.waiting import PATIENCE_S, until

SECRET = "the secret of these tests"
OPEN_UNTIL_MS = 4_000_000_000_000
"""Time until which each session may be open, however often it is opened."""
DEADLINE_S = 120.0
USER: Any = {"role": "user", "content": "hi"}
Script = Callable[[RequestTurn], Sequence[Record]]
R = TypeVar("R", bound=Record)


def finished(turn: RequestTurn, text: str | None = "hello", **more: Any) -> ReplyFinished:
    """Return the whole answer to a turn."""
    message = {"role": "assistant", "content": text} | more.pop("message", {})
    fields = {
        "turn_id": turn.turn_id,
        "message": orjson.dumps(message),
        "finish_reason": "stop",
        "prompt_tokens": 5,
        "completion_tokens": len(text or ""),
        "version": 3,
    }
    assert turn.reply is not None
    return ReplyFinished(
        gateway=turn.reply.gateway, session_id=turn.session_id, **{**fields, **more}
    )


def deltas(turn: RequestTurn, *texts: str) -> list[ReplyDelta]:
    """Return the deltas of an answer, one token a character."""
    assert turn.reply is not None
    offset, made = 0, []
    for text in texts:
        made.append(
            ReplyDelta(
                gateway=turn.reply.gateway,
                session_id=turn.session_id,
                turn_id=turn.turn_id,
                token_offset=offset,
                token_count=len(text),
                delta=orjson.dumps({"content": text}),
            )
        )
        offset += len(text)
    return made


def answered(command: Any, status: int = 200, reason: str = "", **more: Any) -> CommandAnswered:
    """Return the answer to a command."""
    return CommandAnswered(
        gateway=command.reply.gateway,
        session_id=command.session_id,
        command_id=command.command_id,
        status=status,
        reason=reason,
        **more,
    )


def _hello(turn: RequestTurn) -> list[Record]:
    return [finished(turn)]


class ScriptedManager:
    """A manager that answers session commands with 200, and turns as `scripts` (by session) say.

    It counts one token a message, and reads the records of made-up releases too.
    """

    def __init__(self, kafka: KafkaSettings) -> None:
        create_topics(kafka, small(REQUESTS, REPLIES, FLEET))
        self.scripts: dict[str, Script] = {}
        self.ids: dict[str, str] = {}
        """Ids of sessions, by the name that a command uses."""
        self.received: list[Record] = []
        self.headers: dict[str, dict[str, bytes]] = {}
        """Kafka headers of the last command of each session."""
        self._producer = Producer(kafka, "scripted-manager")
        self._reader = Reader(kafka, "scripted-manager", rules=ReadingRules(decode=decode))
        partitions = range(SMALL[REQUESTS.name].partitions)
        self._reader.assign({(REQUESTS.name, number): 0 for number in partitions})
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def send(self, address: ReplyAddress | None, *replies: Record) -> None:
        """Write replies to a gateway."""
        assert address is not None
        for reply in replies:
            self._producer.send(REPLIES.name, reply, partition=address.partition)

    def find(self, kind: type[R], session_id: str) -> list[R]:
        """Return the commands of this kind and session that were received."""
        return [
            record
            for record in list(self.received)
            if isinstance(record, kind) and vars(record)["session_id"] == session_id
        ]

    def await_command(self, kind: type[R], session_id: str, number: int = 1) -> R:
        """Return the `number`-th command of this kind and session; wait for it."""
        until(lambda: len(self.find(kind, session_id)) >= number, f"{kind.__name__} {number}")
        return self.find(kind, session_id)[number - 1]

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        self._producer.close()

    def _serve(self) -> None:
        while not self._closed.is_set():
            for item in self._reader.poll(0.05):
                self.headers[str(item.key)] = dict(item.headers)
                self.received.append(item.record)
                self._answer(item.record)
        self._reader.close()

    def _answer(self, record: Record) -> None:
        address = vars(record).get("reply")
        if isinstance(record, RequestTurn):
            script = self.scripts.get(record.session_id, _hello)
            self.send(address, *script(record))
        elif isinstance(record, OpenSession) and record.policy == "unknown":
            self.send(address, answered(record, 503, "unknown_policy"))
        elif isinstance(record, CountTokens):
            self.send(address, answered(record, tokens=len(record.messages)))
        elif isinstance(record, DescribeSession):
            self.send(address, answered(record, state=b'{"status":"open"}'))
        elif address is not None:
            answer = answered(record)
            if isinstance(record, OpenSession):
                answer = replace(answer, open_until_ms=OPEN_UNTIL_MS)
            session_id = self.ids.get(answer.session_id, answer.session_id)
            self.send(address, replace(answer, session_id=session_id))


@dataclass(frozen=True)
class GatewayProcess:
    """A running gateway."""

    url: str
    process: subprocess.Popen[bytes]

    keys = Keys(SECRET)

    @property
    def admin(self) -> dict[str, str]:
        """Return the headers of a call with the admin key."""
        return {"authorization": f"Bearer {derived_admin_key(SECRET)}"}

    def bearing(self, session: str) -> dict[str, str]:
        """Return the headers of a call with a session's key."""
        return {"authorization": f"Bearer {self.keys.session_key(session)}"}


@contextmanager
def gateway_process(
    kafka: KafkaSettings, otlp_endpoint: str | None = None, **settings: object
) -> Iterator[GatewayProcess]:
    """Run a gateway in its own process, ready to serve; end it by SIGTERM."""
    port = settings.pop("port", None) or free_port()
    # A broker that a busy machine starves for seconds is not away.
    settings = {"kafka_timeout_s": PATIENCE_S, **settings}
    environment = {
        **os.environ,
        **_variables({"kafka__bootstrap_servers": kafka.bootstrap_servers}),
        **_variables({"kafka__topic_prefix": kafka.topic_prefix, "kafka__wait_s": kafka.wait_s}),
        **_variables({"gateway__secret": SECRET, "gateway__port": port}),
        **_variables({f"gateway__{name}": value for name, value in settings.items()}),
    }
    if otlp_endpoint is not None:
        environment |= _variables({"telemetry__otlp_endpoint": otlp_endpoint})
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "seamlessflow.producers.gateway"], cwd=ROOT, env=environment
    )
    gateway = GatewayProcess(f"http://127.0.0.1:{port}", process)
    try:
        until(lambda: _ready(gateway), "the gateway to be ready")
        yield gateway
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def _variables(values: Mapping[str, object]) -> dict[str, str]:
    return {f"SEAMLESSFLOW_{name.upper()}": str(value) for name, value in values.items()}


def _ready(gateway: GatewayProcess) -> bool:
    assert gateway.process.poll() is None, "the gateway ended"
    try:
        return http.get(f"{gateway.url}/ready").status_code == 200
    except httpx.ConnectError:
        return False


def assert_told(answer: httpx.Response, path: str) -> None:
    """Check that an error has the format of the dialect at this path."""
    body = answer.json()
    assert answer.headers["content-type"] == "application/json"
    assert body["error"]["message"]
    if path.startswith("/v1/messages"):
        assert body["type"] == "error" and body["error"]["type"]
    elif path.startswith("/v1beta/"):
        assert body["error"]["code"] == answer.status_code and body["error"]["status"]
    else:
        assert body["error"].keys() == {"message", "type", "param", "code"}
