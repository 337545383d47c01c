"""A conversation as an agent sends it, put in canonical form. Pure; the same for all dialects.

Some agents send a turn back as several messages, one for each call. These messages are joined
again, even if tool results stand between them. A call's id names its turn, because the gateway made
it. So messages whose calls name one turn were sampled together. A message with only text names no
turn, and may be a whole answer: it stays separate.

Tool results are put in call order. Chat templates write no ids: the first result stands for the
first call. As at the vendors, results may arrive in any order, and each call has exactly one. A
second result for a call is refused, and so is a call without a result. Results must follow their
calls at once. Only messages that the vendor allows may stand between them (`Wording.between`).
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from seamlessflow.producers.gateway.dialects.canonical import canonical_json
from seamlessflow.producers.gateway.errors import bad
from seamlessflow.schemas.identity import turn_of_tool_call

HistoryMessage = Mapping[str, Any]
CallPlace = tuple[int, int]
"""A call: its message's place, and its number in that message."""

_TEXTS = ("content", "reasoning_content")


class Wording(NamedTuple):
    """A vendor's sentences, with `{call}` in each, and the parameter that they are about."""

    param: str
    twice: str
    missing: str
    between: Collection[str] = ()
    """Roles whose messages may stand between a call and its result."""


@dataclass(slots=True)
class ReadMessage:
    """A message while its parts are read."""

    role: str
    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    answered_call: str | None = None

    def thought(self) -> str:
        """Return the message's whole reasoning."""
        return "".join(self.thoughts)

    def canonical(self) -> dict[str, object]:
        """Return the message in canonical form."""
        if self.role != "assistant":
            read: dict[str, object] = {"role": self.role, "content": "\n".join(self.texts)}
            return (
                read if self.answered_call is None else read | {"tool_call_id": self.answered_call}
            )
        read = {"role": "assistant"}
        content = "".join(self.texts)
        if content or not self.calls:
            read["content"] = content
        if thought := self.thought():
            read["reasoning_content"] = thought
        return read | {"tool_calls": self.calls} if self.calls else read


M = TypeVar("M", bound=ReadMessage)


class ReadHistory(Generic[M]):
    """A request's messages, read one after the other. Consecutive ones with one role become one."""

    def __init__(self, kind: type[M], wording: Wording) -> None:
        self._kind = kind
        self._wording = wording
        self._messages: list[M] = []

    @property
    def ends_with_assistant(self) -> bool:
        """Return whether the model would have to continue an answer that the request begins."""
        return bool(self._messages) and self._messages[-1].role == "assistant"

    def canonical(self) -> tuple[bytes, ...]:
        """Return the messages as canonical JSON. Raises `ApiError` as `canonical_turns` does."""
        return canonical_turns([message.canonical() for message in self._messages], self._wording)

    def _message_of(self, role: str) -> M:
        """Return the last message if it has this role, otherwise begin a new one."""
        if not self._messages or self._messages[-1].role != role:
            self._messages.append(self._kind(role))
        return self._messages[-1]

    def _last_answer(self) -> M:
        """Return the assistant's last message, or an empty one if there is none."""
        answers = (message for message in reversed(self._messages) if message.role == "assistant")
        return next(answers, self._kind("assistant"))


def canonical_turns(messages: Sequence[HistoryMessage], wording: Wording) -> tuple[bytes, ...]:
    """Return canonical messages as JSON: each turn's messages joined, results in call order.

    Raises `ApiError` (400) for a call's second result, and for a call without a result.
    """
    turns = joined(messages)
    places = places_by_call(turns, wording)
    return tuple(canonical_json(turns[place], wording.param) for place in places)


def is_split(messages: Sequence[HistoryMessage]) -> bool:
    """Return whether two assistant messages with only results between them belong to one turn."""
    before = None
    for message in messages:
        if message.get("role") == "assistant":
            turn = _turn(message)
            if turn is not None and turn == before:
                return True
            before = turn
        elif message.get("role") != "tool":
            before = None
    return False


def joined(messages: Sequence[HistoryMessage]) -> list[HistoryMessage]:
    """Return canonical messages, with each turn's messages joined where the first one stands."""
    whole: list[HistoryMessage] = []
    begun: int | None = None
    for message in messages:
        if message.get("role") == "assistant":
            turn = _turn(message)
            if begun is not None and turn is not None and turn == _turn(whole[begun]):
                whole[begun] = _together(whole[begun], message)
                continue
            begun = len(whole)
        elif message.get("role") != "tool":
            begun = None
        whole.append(message)
    return whole


def places_by_call(messages: Sequence[HistoryMessage], wording: Wording) -> Sequence[int]:
    """Return the messages' places in the order in which they are rendered.

    Only results between two assistant messages change places with each other. The last message's
    calls need no results: some agents ask for one more answer after them, and training
    conversations may end there. Raises `ApiError` (400).
    """
    places = list(range(len(messages)))
    calls = _Calls()
    run = list[tuple[CallPlace, int]]()
    for place, message in enumerate(messages):
        # A message that stands for an earlier answer (`schemas/identity.py`) has no role.
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


def _turn(message: HistoryMessage) -> str | None:
    """Return the turn that all the message's calls name, or None."""
    turns = {turn_of_tool_call(str(call["id"])) for call in message.get("tool_calls") or ()}
    return turns.pop() if len(turns) == 1 else None


def _together(first: HistoryMessage, second: HistoryMessage) -> HistoryMessage:
    calls = {call["id"]: call for call in (*first["tool_calls"], *second["tool_calls"])}
    texts = {
        name: first.get(name) or second.get(name)
        for name in _TEXTS
        if first.get(name) or second.get(name)
    }
    return {**first, **texts, "tool_calls": list(calls.values())}


def _exchange(places: list[int], run: Sequence[tuple[CallPlace, int]]) -> None:
    for (_, place), (_, result) in zip(run, sorted(run), strict=True):
        places[place] = result


class _Calls:
    """Calls that wait for their results; several may have one id."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[CallPlace]] = {}

    def ask(self, place: int, calls: Sequence[Mapping[str, Any]]) -> None:
        for number, call in enumerate(calls):
            self._waiting.setdefault(call["id"], deque()).append((place, number))

    def answer(self, call_id: str) -> CallPlace | None:
        """Return the call that a result is for, or None if each call with that id has a result."""
        waiting = self._waiting.get(call_id)
        if waiting is None:
            # The request continues a response. Its calls have our ids, which end with their number.
            self._waiting[call_id] = deque()
            number = call_id.rpartition("_")[2] if turn_of_tool_call(call_id) is not None else "0"
            return -1, int(number)
        return waiting.popleft() if waiting else None

    def refuse_unanswered(self, wording: Wording) -> None:
        """Raise `ApiError` (400) that names the calls without a result, if there are any."""
        missing = [call_id for call_id, waiting in self._waiting.items() if waiting]
        if missing:
            raise bad(wording.param, wording.missing.format(call=", ".join(missing)))
