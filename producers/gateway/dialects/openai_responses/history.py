"""A conversation sent as items, put together again as messages. Pure.

All items that one turn sampled are one message of the assistant. Ids of our own items name their
turn. An item that is only named stands for all of its turn's message, beside what was sent of it.
Without ids, the order of the items decides: reasoning begins a turn, and so does a message right
after a message.
"""

from dataclasses import dataclass, field
from typing import Literal

from seamlessflow.producers.gateway.dialects.openai_responses.items import Item
from seamlessflow.schemas.identity import turn_of_tool_call
from seamlessflow.schemas.turn_references import turn_reference

Part = Literal["reasoning", "message", "call"]


@dataclass(slots=True)
class AssistantTurn:
    """The assistant's message of one turn, while its items are read."""

    turn: str | None = None
    last: Part = "reasoning"
    reasoning: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    calls: list[Item] = field(default_factory=list)
    is_named: bool = False
    """True if an item of the turn was named instead of sent."""

    def may_contain(self, part: Part, turn: str | None) -> bool:
        """Return whether the next item belongs to this turn too.

        Without ids, an item that a model would not sample after the last one begins another turn.
        """
        if turn is not None and self.turn is not None:
            return turn == self.turn
        match part:
            case "reasoning":
                return self.last == "reasoning"
            case "message":
                return self.last != "message"
        return True

    def message(self) -> Item:
        """Return the message in canonical form, or the reference that stands for it."""
        sent: Item = {}
        content = "".join(self.texts)
        if self.calls:
            sent["tool_calls"] = self.calls
        if self.reasoning:
            sent["reasoning_content"] = "".join(self.reasoning)
        if self.is_named and self.turn is not None:
            return turn_reference(self.turn, sent | ({"content": content} if content else {}))
        if content or not self.calls:
            sent["content"] = content
        return {"role": "assistant", **sent}


class ResponsesHistory:
    """The messages that were read so far.

    With `continues` the input follows a response, whose calls only the manager knows.
    """

    def __init__(self, continues: bool = False) -> None:
        self._continues = continues
        self._messages: list[AssistantTurn | Item] = []
        self._assistant: AssistantTurn | None = None
        self._after_tool_answer = False
        self._calls: set[str] = set()
        self._named: set[str | None] = set()

    def assistant_message(self, part: Part, turn: str | None) -> AssistantTurn:
        """Return the message that an item of the assistant belongs to."""
        if self._assistant is None or not self._belongs(self._assistant, part, turn):
            self._assistant = AssistantTurn()
            self._after_tool_answer = False
            self._messages.append(self._assistant)
        self._assistant.turn = self._assistant.turn or turn
        self._assistant.last = part
        return self._assistant

    def add_call(self, call: Item, turn: str | None) -> None:
        """Add a call of the assistant."""
        self.assistant_message("call", turn).calls.append(call)
        self._calls.add(call["id"])

    def add_named(self, part: Part, turn: str) -> None:
        """Add an item of a turn that the agent names instead of sending it."""
        self.assistant_message(part, turn).is_named = True
        self._named.add(turn)

    def may_have_called(self, call_id: str) -> bool:
        """Return whether there is, or may be, an earlier call with this id."""
        return (
            self._continues or call_id in self._calls or turn_of_tool_call(call_id) in self._named
        )

    def add_tool_answer(self, message: Item) -> None:
        """Add a tool's answer."""
        self._messages.append(message)
        self._after_tool_answer = True

    def add_message(self, message: Item) -> None:
        """Add a message of another role."""
        self._messages.append(message)
        self._assistant = None

    def messages(self) -> list[Item]:
        """Return all messages in canonical form."""
        return [
            message.message() if isinstance(message, AssistantTurn) else message
            for message in self._messages
        ]

    def _belongs(self, assistant: AssistantTurn, part: Part, turn: str | None) -> bool:
        # Some agents put each tool's answer right after its call, between items of one turn.
        if self._after_tool_answer:
            return turn is not None and turn == assistant.turn
        return assistant.may_contain(part, turn)
