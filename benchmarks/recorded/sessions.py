"""Sessions as events on the log, from an agent with a tool, a manager and one worker.

The manager's decisions and the demo's renderer are the real ones; gateway and worker are simulated.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import orjson
import xxhash

from seamlessflow.consumers.trajectories.decisions.context import Context, Decision
from seamlessflow.consumers.trajectories.decisions.decide import decide
from seamlessflow.consumers.trajectories.decisions.fleet import RolloutFleet
from seamlessflow.consumers.trajectories.sessions import fold
from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.demo.configuration import RENDERER
from seamlessflow.demo.task import LOOKUP
from seamlessflow.demo.tokenizer import make_tokenizer
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas import records as r
from seamlessflow.schemas.codec import decode, encode
from seamlessflow.schemas.identity import tool_call_id
from seamlessflow.schemas.records import Record, Sampling
from seamlessflow.schemas.tokens import TOKEN_BYTES
from seamlessflow.schemas.topics import SESSIONS, SessionCommand

EPOCH = 1
AGE_MS = 86_400_000
_POLICY = "default"
_DEADLINE_S = 300
_TOOLS = orjson.dumps([LOOKUP], option=orjson.OPT_SORT_KEYS)
_REPLY = r.ReplyAddress(partition=1, gateway="gateway-0")


@contextmanager
def renderer() -> Iterator[tuple[Renderer, r.PolicyWeights]]:
    """Return the demo's renderer, and the policy that names it."""
    with TemporaryDirectory() as name:
        directory = Path(name)
        make_tokenizer(directory)
        made = Renderer.load(directory, RENDERER)
        yield made, _policy_weights(made, directory)


@dataclass(frozen=True, slots=True)
class Shape:
    """A session's size; lengths in tokens."""

    turns: int
    prompt: int
    """Tokens that each turn adds to the prompt, about."""
    sampled: int
    """Tokens that each turn samples, about."""
    progressed: int = 2
    """Count of `TurnProgressed` records before a turn is completed."""


@dataclass
class Recorder:
    """Recorder for one session, turn by turn."""

    renderer: Renderer
    policy: r.PolicyWeights
    now_ms: int
    seed: int = 0
    session: Session | None = None
    events: list[Record] = field(default_factory=list)
    history: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._fleet = RolloutFleet()
        self._fleet.apply(self.policy, self.now_ms)
        self._fleet.apply(_acquired(self.now_ms), self.now_ms)

    def record(self, shape: Shape, *, finalized: bool = True) -> "Recorder":
        """Record a whole session."""
        self.open()
        for _ in range(shape.turns):
            self.turn(shape)
        if finalized:
            self._carry_out(r.AssignReward(**self._fields(), reward=r.Reward(value=1.0)))
            self._carry_out(r.CloseSession(**self._fields()))
        return self

    def open(self) -> None:
        """Open the session; it stays open for a day."""
        more: dict[str, Any] = {"max_age_ms": AGE_MS, "max_idle_ms": AGE_MS}
        self._carry_out(r.OpenSession(**self._fields(), policy=_POLICY, **more))
        self.history = [_message("system", "You call functions.")]

    def turn(self, shape: Shape) -> None:
        """Record a turn: the agent's request and the worker's answer."""
        command = self.request(shape)
        decision = self._carry_out(command)
        (_, prompt), *_ = decision.prompts
        assert isinstance(prompt, r.GenerateTurn)
        self.history = list(command.messages)
        self._generate(prompt, shape)

    @property
    def turns(self) -> int:
        """Count of the session's turns so far."""
        return 0 if self.session is None else len(self.session.turns)

    @property
    def history_tokens(self) -> int:
        """Count of the session's tokens so far."""
        return 0 if self.session is None else sum(node.length for node in self.session.tree.nodes)

    def request(self, shape: Shape) -> r.RequestTurn:
        """Return the agent's next request, as the manager decodes it; each with a new message."""
        text = self._text(shape.prompt)
        new = (
            _message("tool", text, tool_call_id="call_0") if self.turns else _message("user", text)
        )
        messages = (*self.history, new)
        command = r.RequestTurn(
            **self._fields(),
            turn_id=self._unique(),
            messages=messages,
            tools=_TOOLS,
            sampling=Sampling(max_tokens=4096),
            stream=True,
            deadline_ms=self.now_ms + AGE_MS,
            body_hash=xxhash.xxh3_128_digest(b"".join(messages)),
        )
        received = decode(encode(command))
        assert isinstance(received, r.RequestTurn)
        return received

    def decide(self, command: SessionCommand) -> Decision:
        """Return the manager's decision about a command; the session does not change."""
        context = Context(
            self._fleet, lambda _: self.renderer, 0, EPOCH, self.now_ms, no_progress_ms=20_000
        )
        return decide(self.session, command, context)

    def _carry_out(self, command: SessionCommand) -> Decision:
        decision = self.decide(command)
        self._append(decision.events)
        return decision

    def _append(self, events: Iterable[Record]) -> None:
        for event in events:
            folded = fold.apply(self.session, event, len(self.events), lambda _: "arguments")
            assert folded.accepted, event
            self.session = folded.session
            self.events.append(event)

    def _generate(self, asked: r.GenerateTurn, shape: Shape) -> None:
        text = orjson.dumps({"name": "lookup", "arguments": {"key": self._text(shape.sampled)}})
        sampled = self.renderer.encode(f"<tool_call>\n{text.decode()}\n</tool_call>")
        sampled += np.int32(self.renderer.stop_token_ids[0]).tobytes()
        parsed = self.renderer.parse(sampled, [LOOKUP])
        assert parsed.well_formed
        calls = [
            {
                "id": tool_call_id(asked.turn_id, number),
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for number, call in enumerate(parsed.tool_calls)
        ]
        message = _message("assistant", None, tool_calls=calls)
        self._append(_outputs(asked, sampled, message, shape.progressed, self.now_ms))
        self.history.append(message)

    def _text(self, tokens: int) -> str:
        return "".join(f"function{self._random.randrange(10)}" for _ in range(tokens // 2))

    def _fields(self) -> dict[str, Any]:
        return {
            "command_id": self._unique(),
            "session_id": f"session-{self.seed}",
            "issued_at_ms": self.now_ms,
            "expires_at_ms": self.now_ms + AGE_MS,
            "reply": _REPLY,
        }

    def _unique(self) -> str:
        return f"{self._random.getrandbits(128):032x}"


def interleaved(sessions: Sequence[Sequence[Record]], copies: int) -> list[Record]:
    """Return copies of the sessions with their own ids, one event from each in turn."""
    copied = [
        [replace(event, session_id=f"{number}-{copy}") for event in events]  # type: ignore[type-var]
        for copy in range(copies)
        for number, events in enumerate(sessions)
    ]
    rounds = zip_longest(*copied)
    return [event for events in rounds for event in events if event is not None]


def write(settings: KafkaSettings, events: Iterable[Record]) -> None:
    """Write events to a new topic `sessions`, each with its session as key."""
    create_topics(settings, [SESSIONS])
    producer = Producer(settings, "benchmark", linger_ms=5)
    for event in events:
        session_id: str = event.session_id  # type: ignore[attr-defined]
        producer.send(SESSIONS.name, event, key=session_id)
    producer.flush(_DEADLINE_S)
    producer.close()


def _policy_weights(made: Renderer, tokenizer_directory: Path) -> r.PolicyWeights:
    """Return version 0 of a policy with a practically unlimited context."""
    return r.PolicyWeights(
        policy=_POLICY,
        version=0,
        step=0,
        directory="",
        manifest_sha256="",
        tokenizer_directory=str(tokenizer_directory),
        tokenizer_hash=made.hash,
        renderer=made.settings.to_json(),
        max_context=1 << 20,
        overrides=Sampling(temperature=1.0),
        at_ms=0,
    )


def _acquired(at_ms: int) -> r.RoleAcquired:
    """Return the event by which a worker takes the rollout role."""
    return r.RoleAcquired(
        worker="worker-0",
        incarnation="incarnation-0",
        role="rollout",
        assignment=1,
        slot=0,
        slot_offset=0,
        version=0,
        took_ms=0,
        at_ms=at_ms,
    )


def _outputs(
    asked: r.GenerateTurn, sampled: bytes, message: bytes, progressed: int, at_ms: int
) -> Iterator[Record]:
    """Yield `progressed` about equally long records, then the rest with the parsed `message`."""
    count, done = len(sampled) // TOKEN_BYTES, 0
    logprobs = np.linspace(-2, 0, count, dtype=np.float32).tobytes()
    for number in range(progressed + 1):
        end = count * (number + 1) // (progressed + 1)
        fields: dict[str, Any] = {
            "session_id": asked.session_id,
            "turn_id": asked.turn_id,
            "dispatch": asked.dispatch,
            "worker": asked.worker,
            "incarnation": asked.incarnation,
            "token_offset": done,
            "token_ids": sampled[4 * done : 4 * end],
            "logprobs": logprobs[4 * done : 4 * end],
            "spans": (r.VersionSpan(start=done, version_min=0, version_max=0),),
            "at_ms": at_ms,
            "delta": message[: 4 * (end - done)],
        }
        if number < progressed:
            yield r.TurnProgressed(**fields)
        else:
            yield r.TurnCompleted(
                **fields,
                finish_reason="tool_calls",
                message=message,
                well_formed=True,
                prompt_length=len(asked.prompt_ids) // TOKEN_BYTES,
                prompt_hash=asked.prompt_hash,
            )
        done = end


def _message(role: str, content: str | None, **more: Any) -> bytes:
    return orjson.dumps({"role": role, "content": content, **more}, option=orjson.OPT_SORT_KEYS)
