"""A real manager process on a real broker, with a test as gateway and worker."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import numpy as np
import xxhash

from seamlessflow.demo.tokenizer import make_tokenizer
from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.kafka.client import BEGINNING
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.rendering.settings import RendererSettings
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas import records as r
from seamlessflow.schemas.identity import session_name
from seamlessflow.schemas.records import Record, Reward, Sampling
from seamlessflow.schemas.topics import (
    CONTROL,
    FLEET,
    PROMPTS,
    REPLIES,
    REQUESTS,
    SESSIONS,
    fleet_key,
)
from tests.builders.own_topics import SMALL, own_topics
from tests.builders.records import commands, control, fleet
from tests.builders.records.content import ids, message

T = TypeVar("T", bound=Record)
GATEWAY = r.ReplyAddress(partition=5, gateway="test-gateway")
POLICY = "default"
DEADLINE_S = 120


@dataclass
class ManagerSystem:
    """A manager with topics of its own; each wait for a record has a deadline."""

    kafka: KafkaSettings
    renderer: Renderer
    tokenizer_directory: Path
    producer: Producer
    readers: dict[str, Reader]
    seen: dict[str, list[Record]] = field(default_factory=dict)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    workers: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    next_beat: float = 0.0

    def announce(
        self, worker: str, slot: int, incarnation: str = "i1", policy: str = POLICY
    ) -> None:
        """Announce that a worker has the rollout role; it sends heartbeats while the test waits."""
        self.workers[worker] = (slot, incarnation, policy)
        self.beat(worker, slot, incarnation, policy)
        self.send(
            CONTROL.name,
            control.acquired(
                worker,
                assignment=1,
                incarnation=incarnation,
                slot=slot,
                slot_offset=0,
                version=0,
                at_ms=now_ms(),
                policy=policy,
            ),
        )

    def beat(self, worker: str, slot: int, incarnation: str = "i1", policy: str = POLICY) -> None:
        """Send the worker's heartbeat."""
        heartbeat = fleet.heartbeat(
            worker,
            incarnation=incarnation,
            role="rollout",
            assignment=1,
            slot=slot,
            version=0,
            policy=policy,
            at_ms=now_ms(),
        )
        self.send(FLEET.name, heartbeat, key=fleet_key(heartbeat))

    def publish_policy(self, policy: str = POLICY, tokenizer: Path | None = None) -> None:
        """Publish version 0 of a policy; `tokenizer` is the directory of another tokenizer."""
        record = fleet.weights(
            policy=policy,
            tokenizer_directory=str(tokenizer or self.tokenizer_directory),
            tokenizer_hash=str(tokenizer or self.renderer.hash),
            renderer=self.renderer.settings.to_json(),
            max_context=4096,
            overrides=Sampling(temperature=1.0),
            at_ms=now_ms(),
        )
        self.send(FLEET.name, record, key=fleet_key(record))

    def send(
        self, topic: str, record: Record, key: str | None = None, partition: int | None = None
    ) -> None:
        """Append and waits for the acknowledgement."""
        self.producer.send(topic, record, key=key, partition=partition)
        self.producer.flush(30)

    def command(self, record: Record) -> None:
        """Send a command of its session."""
        self.send(REQUESTS.name, record, key=record.session_id)  # type: ignore[attr-defined]

    def expect(
        self, topic: str, kind: type[T], where: Callable[[T], bool] = lambda record: True
    ) -> T:
        """Return and remove the first record of this kind; wait for it."""
        deadline = time.monotonic() + DEADLINE_S
        kept = self.seen.setdefault(topic, [])
        while time.monotonic() < deadline:
            for record in kept:
                if isinstance(record, kind) and where(record):
                    kept.remove(record)
                    return record
            kept += [received.record for received in self.readers[topic].poll(0.1)]
            self._keep_beating()
            for process in self.processes:
                assert process.poll() in (None, -9), "a manager ended by itself"
        raise AssertionError(f"no {kind.__name__} on {topic}; there were {kept}")

    def _keep_beating(self) -> None:
        if time.monotonic() > self.next_beat:
            self.next_beat = time.monotonic() + 1
            for worker, (slot, incarnation, policy) in self.workers.items():
                self.beat(worker, slot, incarnation, policy)

    def take(self, topic: str) -> list[Record]:
        """Return and remove all records of a topic."""
        records = self.seen.pop(topic, [])
        records += [received.record for received in self.readers[topic].poll(0.02)]
        return records

    def open_session(self, session_id: str, **more: Any) -> None:
        """Open a session and wait for the answer."""
        assert self.call(commands.open_session, session_id, **opening(session_id, **more)) == "200"

    def call(self, command: Callable[..., Record], session_id: str, **more: Any) -> str:
        """Send a command of a session; return status and reason of the answer."""
        sent = command(**_sent(session_id), **more)
        self.command(sent)
        answer = self.answer(sent.command_id)  # type: ignore[attr-defined]
        return f"{answer.status} {answer.reason}".rstrip()

    def request(self, session_id: str, messages: Sequence[bytes], **more: Any) -> r.RequestTurn:
        """Request a turn."""
        body = xxhash.xxh3_128_digest(b"".join(messages))
        fields = {
            "turn_id": uuid4().hex,
            "sampling": Sampling(max_tokens=16),
            "stream": False,
            "deadline_ms": now_ms() + 60_000,
            "body_hash": body,
            **more,
        }
        command = commands.request_turn(**_sent(session_id), messages=tuple(messages), **fields)
        self.command(command)
        return command

    def answer(self, command_id: str) -> r.CommandAnswered:
        """Return the answer to a command."""
        return self.expect(
            REPLIES.name, r.CommandAnswered, lambda record: record.command_id == command_id
        )

    def generate(self, turn_id: str) -> r.GenerateTurn:
        """Return the prompt that the worker gets for a turn."""
        return self.expect(PROMPTS.name, r.GenerateTurn, lambda record: record.turn_id == turn_id)

    def complete(self, asked: r.GenerateTurn, text: str, **more: Any) -> bytes:
        """Complete a turn as its worker does, but for `more`; return the sampled ids."""
        sampled = self.renderer.encode(text) + ids(self.renderer.stop_token_ids[0])
        rest = sampled[len(asked.completion_ids) :]
        content = text if asked.raw else self.renderer.parse(sampled).content
        fields: dict[str, Any] = {
            "finish_reason": "stop",
            "message": message("assistant", content),
            "well_formed": True,
            "prompt_length": len(asked.prompt_ids) // 4,
            "prompt_hash": xxhash.xxh3_128_digest(asked.prompt_ids),
        }
        self.output(r.TurnCompleted, asked, rest, **{**fields, **more})
        return sampled

    def output(
        self, kind: Callable[..., Record], asked: r.GenerateTurn, sampled: bytes, **more: Any
    ) -> None:
        """Write an output event of the turn's worker."""
        start = len(asked.completion_ids) // 4
        record = kind(
            session_id=asked.session_id,
            turn_id=asked.turn_id,
            dispatch=asked.dispatch,
            worker=asked.worker,
            incarnation=asked.incarnation,
            token_offset=start,
            token_ids=sampled,
            logprobs=np.full(len(sampled) // 4, -0.5, np.float32).tobytes(),
            spans=(r.VersionSpan(start=start, version_min=0, version_max=0),),
            at_ms=now_ms(),
            **more,
        )
        self.send(SESSIONS.name, record, key=asked.session_id, partition=asked.partition)

    def finished(self, turn_id: str) -> r.ReplyFinished:
        """The answer to a turn."""
        return self.expect(REPLIES.name, r.ReplyFinished, lambda record: record.turn_id == turn_id)

    def close(self, session_id: str, await_reward_ms: int = 0) -> None:
        """Close a session."""
        command = commands.close_session(**_sent(session_id), await_reward_ms=await_reward_ms)
        self.command(command)

    def reward(self, session_id: str, value: float) -> None:
        """Assign a reward to a session."""
        self.command(commands.assign_reward(Reward(value=value), **_sent(session_id)))

    def reward_and_close(self, session_id: str, value: float) -> r.Trajectory:
        """Reward and close a session; return its trajectory."""
        self.reward(session_id, value)
        self.close(session_id)
        return self.expect(
            "trajectories",
            r.Trajectory,
            lambda record: session_name(record.session_id) == session_id,
        )

    def start_manager(
        self, member: str = "0", log: Path | None = None, **settings: str
    ) -> subprocess.Popen[bytes]:
        """Start a manager process; `log` gets its standard error."""
        environment = {
            **os.environ,
            "SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS": self.kafka.bootstrap_servers,
            "SEAMLESSFLOW_KAFKA__TOPIC_PREFIX": self.kafka.topic_prefix,
            "SEAMLESSFLOW_MANAGER__SLOT": member,
            **settings,
        }
        command = [sys.executable, "-m", "seamlessflow.consumers.trajectories"]
        if log is None:
            process = subprocess.Popen(command, env=environment)
        else:
            with log.open("ab") as words:
                process = subprocess.Popen(command, env=environment, stderr=words)
        self.processes.append(process)
        return process


def opening(session_id: str, **more: Any) -> dict[str, Any]:
    """Return what opens a session, besides the fields of every command."""
    return {"policy": POLICY, "group_id": f"{session_id}-group", **more}


def _sent(session_id: str) -> dict[str, Any]:
    return {
        "command_id": uuid4().hex,
        "session_id": session_id,
        "issued_at_ms": now_ms(),
        "expires_at_ms": now_ms() + 60_000,
        "reply": GATEWAY,
    }


@contextmanager
def manager_system(broker: KafkaSettings, directory: Path) -> Iterator[ManagerSystem]:
    """Yield new topics with the weights of one policy and no manager yet."""
    with own_topics(broker) as settings, _on_topics(settings, directory) as made:
        yield made


@contextmanager
def _on_topics(settings: KafkaSettings, directory: Path) -> Iterator[ManagerSystem]:
    create_topics(settings, SMALL.values())
    make_tokenizer(directory)
    renderer = Renderer.load(directory, RendererSettings("qwen3"))
    readers = {
        name: Reader(settings, f"test-{name}") for name in ("replies", "prompts", "trajectories")
    }
    for name, reader in readers.items():
        reader.assign({(name, number): BEGINNING for number in range(SMALL[name].partitions)})
    made = ManagerSystem(settings, renderer, directory, Producer(settings, "test"), readers)
    made.publish_policy()
    try:
        yield made
    finally:
        for process in made.processes:
            process.kill()
            process.wait()
        for reader in readers.values():
            reader.close()
        made.producer.close()
