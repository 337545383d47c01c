"""Results of tool calls in the order of their calls. Pure; used by every dialect.

Chat templates write no ids: the first result stands for the first call. As at the vendors, results
may come in any order, and each call has exactly one: a second one of a call is refused, and so is a
call without any. Results follow their calls at once, but for messages that the vendor lets stand
between them (`Wording.between`).
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from seamlessflow.producers.gateway.errors import bad
from seamlessflow.schemas.identity import turn_of_tool_call

Place = tuple[int, int]
"""A call: the place of its message and its number there."""


class Wording(NamedTuple):
    """Sentences of a vendor, with `{call}` in each, and the parameter that they are about."""

    param: str
    twice: str
    missing: str
    between: Collection[str] = ()
    """Roles whose messages may stand between a call and its result."""


def places_by_call(messages: Sequence[Mapping[str, Any]], wording: Wording) -> Sequence[int]:
    """Return the places of messages in the order in which they are to be rendered.

    Only results between two messages of the assistant change places with each other. The calls of
    the last message need no results: some agents ask for one more answer behind them, and
    conversations to learn from may end there. Raises `ApiError` (400).
    """
    places = list(range(len(messages)))
    calls, run = _Calls(), list[tuple[Place, int]]()
    for place, message in enumerate(messages):
        # A message that stands for an answer of the session (`turn_references.py`) has no role.
        role = message.get("role", "assistant")
        if role == "tool":
            call = calls.answer(message["tool_call_id"])
            if call is None:
                raise bad(wording.param, wording.twice.format(call=message["tool_call_id"]))
            run.append((call, place))
        elif role == "assistant":
            _exchange(places, run)
            run = []
            if place < len(messages) - 1:
                calls.ask(place, message.get("tool_calls") or ())
        elif role not in wording.between:
            calls.refuse_unanswered(wording)
    _exchange(places, run)
    calls.refuse_unanswered(wording)
    return places


def _exchange(places: list[int], run: Sequence[tuple[Place, int]]) -> None:
    for (_, place), (_, result) in zip(run, sorted(run), strict=True):
        places[place] = result


class _Calls:
    """Calls that wait for their results; several may have one id."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Place]] = {}

    def ask(self, place: int, calls: Sequence[Mapping[str, Any]]) -> None:
        for number, call in enumerate(calls):
            self._waiting.setdefault(call["id"], deque()).append((place, number))

    def answer(self, call_id: str) -> Place | None:
        """Return the call that a result is for, or None if each call of that id has its result."""
        waiting = self._waiting.get(call_id)
        if waiting is None:
            # The request goes on from a response, whose calls have ids of ours with their number.
            self._waiting[call_id] = deque()
            number = call_id.rpartition("_")[2] if turn_of_tool_call(call_id) is not None else "0"
            return -1, int(number)
        return waiting.popleft() if waiting else None

    def refuse_unanswered(self, wording: Wording) -> None:
        """Raise `ApiError` (400) that names the calls without a result, if there are any."""
        missing = [call_id for call_id, waiting in self._waiting.items() if waiting]
        if missing:
            raise bad(wording.param, wording.missing.format(call=", ".join(missing)))
