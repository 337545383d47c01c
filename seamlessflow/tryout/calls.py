"""Facts about calls that were sent to the gateway, and about breaks in their histories. Pure."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs

import orjson

from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.producers.gateway.dialects.dialect import Dialect
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.producers.gateway.routes import DIALECTS, dialect_of_call, route_of
from seamlessflow.schemas.records import TurnStarted
from seamlessflow.tryout.facts import CallFacts, HistoryBreak
from seamlessflow.tryout.policy import offered_tools
from seamlessflow.tryout.relay import SentCall, WantedAnswer
from seamlessflow.tryout.unread import MOST_CHOICES, unread_members

_BROKEN = ("render", "root")
"""Match rules that go on from no earlier turn."""
_SHOWN_CHARACTERS = 300


def request_of(call: SentCall) -> CanonicalRequest | None:
    """Return a call as the gateway reads it; None if it samples nothing, or is refused."""
    dialect = _dialect(call)
    if dialect is None:
        return None
    try:
        return dialect.parse(call.body, MOST_CHOICES)
    except ApiError:
        return None


def call_facts(call: SentCall) -> CallFacts:
    """Return a call's facts."""
    dialect = _dialect(call)
    request = request_of(call)
    body = _object(call.body)
    wanted = call.wanted or WantedAnswer()
    return CallFacts(
        path=call.path,
        status=call.status,
        repeats=call.repeats,
        parameters=tuple(body),
        unread=tuple(unread_members(dialect, body)) if dialect and request else (),
        fault="" if call.status < 400 else _fault(call),
        tools=tuple(str(tool["name"]) for tool in offered_tools(request)) if request else (),
        called=wanted.tool,
        unwritten=wanted.unwritten,
        by_schema=request is not None and request.sampling.json_schema is not None,
    )


def history_breaks(
    started: Sequence[TurnStarted], requests: Sequence[CanonicalRequest]
) -> list[HistoryBreak]:
    """Return a session's turns, except the first, that go on from no earlier turn.

    `requests`: its calls in order. If a turn has no call of its own, as when a call asks for
    several choices, no message is named.
    """
    breaks = []
    for number, turn in enumerate(started):
        if not number or turn.match_rule not in _BROKEN:
            continue
        place = None
        if len(requests) == len(started):
            messages = requests[number].messages
            place = _first_new(messages, [earlier.messages for earlier in requests[:number]])
        if place is None:
            breaks.append(HistoryBreak(number + 1, turn.match_detail))
        else:
            role = str(orjson.loads(messages[place])["role"])
            breaks.append(HistoryBreak(number + 1, turn.match_detail, place + 1, role))
    return breaks


def _first_new(messages: Sequence[bytes], earlier: Sequence[Sequence[bytes]]) -> int | None:
    """Return the place of the first message that differs from all earlier calls; None if none."""
    longest = max(_shared(messages, others) for others in earlier)
    return longest if longest < len(messages) else None


def _shared(messages: Sequence[bytes], others: Sequence[bytes]) -> int:
    pairs = zip(messages, others, strict=False)
    return next(
        (place for place, (message, other) in enumerate(pairs) if message != other),
        min(len(messages), len(others)),
    )


def _dialect(call: SentCall) -> Dialect | None:
    if call.method != "POST" or (spoken := DIALECTS.get(route_of(call.path, "POST"))) is None:
        return None

    def parameter(name: bytes) -> bytes:
        return parse_qs(call.query).get(name.decode(), [""])[0].encode()

    return dialect_of_call(spoken, call.path, parameter)


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _fault(call: SentCall) -> str:
    """Return what the gateway said, in any dialect's form."""
    error = _object(call.answer).get("error")
    facts = error if isinstance(error, dict) else {}
    text = str(facts.get("message") or call.answer.decode(errors="replace"))[:_SHOWN_CHARACTERS]
    member = facts.get("param")
    return text if not member or str(member) in text else f"{member}: {text}"
