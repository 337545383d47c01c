"""Sessions as events of the log, of an agent with a tool, a manager and one worker.

The manager's decisions and the renderer are the real ones; gateway and worker are simulated.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

import numpy as np
import orjson
import xxhash

from benchmarks.recorded.demo_policy import POLICY, acquired
from benchmarks.recorded.sampled_turn import outputs
from seamlessflow.consumers.trajectories.decisions.context import Context, Decision
from seamlessflow.consumers.trajectories.decisions.decide import decide
from seamlessflow.consumers.trajectories.decisions.fleet import RolloutFleet
from seamlessflow.consumers.trajectories.sessions import fold
from seamlessflow.consumers.trajectories.sessions.addressing import Command
from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.demo.task import LOOKUP
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.schemas import records as r
from seamlessflow.schemas.codec import decode, encode
from seamlessflow.schemas.identity import tool_call_id
from seamlessflow.schemas.records import Record, Sampling

EPOCH = 1
AGE_MS = 86_400_000
_TOOLS = orjson.dumps([LOOKUP], option=orjson.OPT_SORT_KEYS)
_REPLY = r.ReplyAddress(partition=1, gateway="gateway-0")


@dataclass(frozen=True, slots=True)
class Shape:
    """Size of a session; lengths in tokens."""

    turns: int
    prompt: int
    """Tokens that each turn adds to the prompt, about."""
    sampled: int
    """Tokens that each turn samples, about."""
    progressed: int = 2
    """Number of `TurnProgressed` before a turn is completed."""


@dataclass
class Recorder:
    """Recorder of one session, turn by turn."""

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
        self._fleet.apply(acquired(self.now_ms), self.now_ms)

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
        self._carry_out(r.OpenSession(**self._fields(), policy=POLICY, **more))
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
        """Number of turns of the session so far."""
        return 0 if self.session is None else len(self.session.turns)

    @property
    def history_tokens(self) -> int:
        """Number of tokens of the session so far."""
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

    def decide(self, command: Command) -> Decision:
        """Return the manager's decision about a command; the session does not change."""
        context = Context(
            self._fleet, lambda _: self.renderer, 0, EPOCH, self.now_ms, no_progress_ms=20_000
        )
        return decide(self.session, command, context)

    def _carry_out(self, command: Command) -> Decision:
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
        self._append(outputs(asked, sampled, message, shape.progressed, self.now_ms))
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
    """Return copies of the sessions with ids of their own, one event of each in turn."""
    copied = [
        [replace(event, session_id=f"{number}-{copy}") for event in events]  # type: ignore[type-var]
        for copy in range(copies)
        for number, events in enumerate(sessions)
    ]
    rounds = zip_longest(*copied)
    return [event for events in rounds for event in events if event is not None]


def _message(role: str, content: str | None, **more: Any) -> bytes:
    return orjson.dumps({"role": role, "content": content, **more}, option=orjson.OPT_SORT_KEYS)
