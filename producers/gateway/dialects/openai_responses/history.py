"""A conversation told in items, put together again as messages. Pure.

What one turn sampled is one message of the assistant. Ids of our own items say what belongs
together; without them the order does in which a turn is sampled.
"""

from dataclasses import dataclass, field
from typing import Literal

from producers.gateway.dialects.openai_responses.items import Item

Part = Literal["reasoning", "message", "call"]


@dataclass(slots=True)
class Assistant:
    """What one turn sampled."""

    turn: str | None = None
    last: Part = "reasoning"
    reasoning: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    calls: list[Item] = field(default_factory=list)

    def takes(self, part: Part, turn: str | None) -> bool:
        """Whether the next item is of this turn too. Without ids what could not have been sampled
        behind the rest is another turn's."""
        if turn is not None and self.turn is not None:
            return turn == self.turn
        match part:
            case "reasoning":
                return self.last == "reasoning"
            case "message":
                return self.last != "message"
        return True

    def message(self) -> Item:
        """In canonical form."""
        read: Item = {"role": "assistant"}
        content = "".join(self.texts)
        if content or not self.calls:
            read["content"] = content
        if self.calls:
            read["tool_calls"] = self.calls
        if self.reasoning:
            read["reasoning_content"] = "".join(self.reasoning)
        return read


class ResponsesHistory:
    """The messages so far. Of one that goes on from a response only the manager knows the calls."""

    def __init__(self, continues: bool = False) -> None:
        self._goes_on = continues
        self._said: list[Assistant | Item] = []
        self._assistant: Assistant | None = None
        self._answering = False
        self._calls: set[str] = set()

    def assistant(self, part: Part, turn: str | None) -> Assistant:
        """The message that an item of the assistant belongs to."""
        if self._assistant is None or not self._belongs(self._assistant, part, turn):
            self._assistant = Assistant()
            self._answering = False
            self._said.append(self._assistant)
        self._assistant.turn = self._assistant.turn or turn
        self._assistant.last = part
        return self._assistant

    def call(self, call: Item, turn: str | None) -> None:
        """A call of the assistant."""
        self.assistant("call", turn).calls.append(call)
        self._calls.add(call["id"])

    def may_have_called(self, call_id: str) -> bool:
        """Whether a call of that id was made, as far as can be told."""
        return self._goes_on or call_id in self._calls

    def answer(self, message: Item) -> None:
        """A tool's answer."""
        self._said.append(message)
        self._answering = True

    def add(self, message: Item) -> None:
        """A message of somebody else."""
        self._said.append(message)
        self._assistant = None

    def messages(self) -> list[Item]:
        """All of them."""
        return [one.message() if isinstance(one, Assistant) else one for one in self._said]

    def _belongs(self, assistant: Assistant, part: Part, turn: str | None) -> bool:
        """Some agents put each answer right behind its call, between items of one turn."""
        if self._answering:
            return turn is not None and turn == assistant.turn
        return assistant.takes(part, turn)
