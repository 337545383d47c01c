"""Callers: the calls of an agent as commands on the log."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import xxhash

from seamlessflow.schemas import records as r
from seamlessflow.schemas.topics import REQUESTS
from tests.builders.records import commands
from tests.properties.choices import Choices
from tests.properties.simulation.conversations import History, canonical
from tests.properties.simulation.gateway import Call, Gateway
from tests.properties.simulation.topics import Topics

POLICY = "p"
TURN_MS = 60_000
IDLE_MS = 100_000
AGE_MS = 1_000_000
_PATIENCE_MS = 300_000
_STOPS: tuple[tuple[str, ...], ...] = ((), (), (), ("3",), ("e", "zz"))
_MODULES = ("", "", "planner")
_TOP_P = (None, None, None, None, 0.9)


@dataclass
class Asked:
    """A question and its calls: one for each choice, more after retries."""

    history: History
    request: r.RequestTurn
    calls: list[Call]
    used: bool = False


@dataclass
class Caller:
    """A caller in one session, which commands address by id or by name."""

    session_id: str
    partition: int
    topics: Topics
    gateway: Gateway
    numbers: Iterator[int]
    clock: Callable[[], int]
    terms: r.SessionTerms | None = None
    """Of a session that nobody opens: its requests name it."""
    asked: list[Asked] = field(default_factory=list)
    instance: str = "g0"
    """Of the gateway, that it calls."""

    def _ask(self, history: History, tools: bytes | None, choices: Choices, **more: Any) -> None:
        sent: dict[str, Any] = {"messages": tuple(map(canonical, history)), **more}
        request = commands.request_turn(
            "",
            **self._header(),
            **sent,
            body_hash=xxhash.xxh3_128_digest(repr((tools, sent)).encode()),
            tools=tools,
            terms=self.terms,
            sampling=r.Sampling(
                max_tokens=2 + choices.below(24),
                stop=choices.pick(_STOPS),
                top_p=choices.pick(_TOP_P),
            ),
            stream=bool(choices.below(2)),
            wants_logprobs=bool(choices.below(2)),
            module=choices.pick(_MODULES),
            deadline_ms=self.clock() + TURN_MS,
        )
        asked = Asked(history, request, [])
        name = self._key(choices) if choices.one_in(2) else None
        for choice in range(2 if choices.one_in(6) else 1):
            asked.request = self._turn(request, choice=choice, idempotency_key=name)
            asked.calls.append(self._call(asked.request, choices))
        self.asked.append(asked)

    def _key(self, choices: Choices) -> str:
        """Return a new idempotency key, or seldom one of another call."""
        keys = [asked.request.idempotency_key for asked in self.asked]
        named = choices.pick([*filter(None, keys), ""]) if choices.one_in(12) else ""
        return named or f"k{next(self.numbers)}"

    def _turn(self, request: r.RequestTurn, **changes: Any) -> r.RequestTurn:
        turn_id = f"t{next(self.numbers)}"
        header = self._header() | {"command_id": turn_id}
        deadline = self.clock() + TURN_MS
        return replace(request, **header, turn_id=turn_id, deadline_ms=deadline, **changes)

    def _call(self, request: r.RequestTurn, choices: Choices) -> Call:
        call: Call = self._send(request, choices, for_turn=True)
        return call

    def _header(self) -> dict[str, Any]:
        return {
            "command_id": f"c{next(self.numbers)}",
            "session_id": self.session_id,
            "issued_at_ms": self.clock(),
            "expires_at_ms": self.clock() + _PATIENCE_MS,
            "reply": None,
        }

    def _send(self, command: Any, choices: Choices | None = None, for_turn: bool = False) -> Any:
        """Append the command; with `choices` a call waits for its answer at a gateway instance."""
        call = None
        if choices is not None:
            address = r.ReplyAddress(partition=0, gateway=self.instance)
            command = replace(command, reply=address)
            call = self.gateway.send(command, command.command_id, self.instance, for_turn)
        # At least once: a repeat stands behind the first.
        for _ in range(2 if choices is not None and choices.one_in(8) else 1):
            self.topics.append(REQUESTS.name, self.partition, command)
        return call
