"""A streamed response's items while they are sampled, and their events. Pure.

`begin` is called first, then `more` any number of times, then `close`. Text is sent as it arrives.
A custom or shell tool's call is sent once complete, since its input is inside its arguments.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from seamlessflow.producers.gateway.dialects.dialect import event
from seamlessflow.producers.gateway.dialects.openai_responses.items import (
    ResponseItem,
    call_item,
    item_id,
    message_item,
    reasoning_item,
    text_part,
)
from seamlessflow.producers.gateway.dialects.openai_responses.tools import Offered

_ADDED = "response.output_item.added"
_DONE = "response.output_item.done"
_CALL_TEXT = {
    "function_call": ("response.function_call_arguments", "arguments"),
    "custom_tool_call": ("response.custom_tool_call_input", "input"),
}


class EventWriter:
    """A writer for numbered events."""

    def __init__(self) -> None:
        self._number = 0

    def __call__(self, kind: str, **members: object) -> bytes:
        data = orjson.dumps({"type": kind, "sequence_number": self._number, **members})
        self._number += 1
        return event(data, kind)

    def delta(self, head: "DeltaHead", text: str) -> bytes:
        """Return the event that is sent for each token."""
        number = self._number
        self._number += 1
        shown = orjson.dumps(text)
        return event(
            b'%b,"sequence_number":%d,"delta":%b}' % (head.begun, number, shown), head.kind
        )


class DeltaHead(NamedTuple):
    """The beginning that all delta events in an item share."""

    kind: str
    begun: bytes
    """Its JSON without the end."""


def delta_head(kind: str, place: Mapping[str, object]) -> DeltaHead:
    """Return the head for deltas with this kind and place."""
    return DeltaHead(kind, orjson.dumps({"type": kind, **place})[:-1])


class OpenMessage:
    """A message that is being sampled."""

    def __init__(self, write: EventWriter, turn_id: str, index: int) -> None:
        self._write = write
        self._id = item_id("message", turn_id, index)
        self._index = index
        self._place = {"item_id": self._id, "output_index": index, "content_index": 0}
        self._delta = delta_head("response.output_text.delta", {**self._place, "logprobs": []})
        self._texts: list[str] = []
        self._logprobs: list[ResponseItem] = []

    def begin(self) -> bytes:
        """Begin the item and its part, without text."""
        item = message_item(self._id, [], "in_progress")
        return self._write(_ADDED, output_index=self._index, item=item) + self._write(
            "response.content_part.added", **self._place, part=text_part("")
        )

    def more(self, text: str, logprobs: Sequence[ResponseItem]) -> bytes:
        """Write more text."""
        self._texts.append(text)
        if not logprobs:
            return self._write.delta(self._delta, text)
        self._logprobs += logprobs
        kind = "response.output_text.delta"
        return self._write(kind, **self._place, delta=text, logprobs=logprobs)

    def close(self, status: str) -> tuple[bytes, ResponseItem]:
        """Return the item's last events, and the whole item."""
        part = text_part("".join(self._texts), self._logprobs)
        item = message_item(self._id, [part], status)
        shown = {"text": part["text"], "logprobs": self._logprobs}
        data = self._write("response.output_text.done", **self._place, **shown)
        data += self._write("response.content_part.done", **self._place, part=part)
        return data + self._write(_DONE, output_index=self._index, item=item), item


class OpenReasoning:
    """Reasoning that is being sampled."""

    def __init__(self, write: EventWriter, turn_id: str, index: int, encrypted: bool) -> None:
        self._write = write
        self._id = item_id("reasoning", turn_id, index)
        self._index = index
        self._encrypted = encrypted
        self._place = {"item_id": self._id, "output_index": index, "content_index": 0}
        self._delta = delta_head("response.reasoning_text.delta", self._place)
        self._texts: list[str] = []

    def begin(self) -> bytes:
        """Begin the item and its part, without text."""
        item = reasoning_item(self._id, "", "in_progress", False) | {"content": []}
        return self._write(_ADDED, output_index=self._index, item=item) + self._write(
            "response.content_part.added", **self._place, part=_thought("")
        )

    def more(self, text: str) -> bytes:
        """Write more text."""
        self._texts.append(text)
        return self._write.delta(self._delta, text)

    def close(self, status: str) -> tuple[bytes, ResponseItem]:
        """Return the item's last events, and the whole item."""
        text = "".join(self._texts)
        item = reasoning_item(self._id, text, status, self._encrypted)
        data = self._write("response.reasoning_text.done", **self._place, text=text)
        data += self._write("response.content_part.done", **self._place, part=_thought(text))
        return data + self._write(_DONE, output_index=self._index, item=item), item


class OpenCall:
    """A tool call that is being sampled."""

    def __init__(
        self,
        write: EventWriter,
        turn_id: str,
        index: int,
        call: Mapping[str, Any],
        offered: Mapping[str, Offered],
    ) -> None:
        self.number: int = call["index"]
        """Index of this call among the turn's calls."""
        self._write = write
        self._turn_id = turn_id
        self._index = index
        self._call = call
        self._offered = offered
        tool = offered.get(call["function"]["name"])
        self._is_held = tool is not None and tool.kind != "function"
        self._texts: list[str] = []

    def begin(self) -> bytes:
        """Begin the item, without arguments."""
        return b"" if self._is_held else self._added(self._item("in_progress"))

    def more(self, arguments: str) -> bytes:
        """Write more argument text."""
        self._texts.append(arguments)
        return b"" if self._is_held else self._delta(self._item("in_progress"), arguments)

    def close(self, status: str) -> tuple[bytes, ResponseItem]:
        """Return the item's last events, and the whole item."""
        item = self._item(status)
        data = self._whole(item) if self._is_held else b""
        if item["type"] in _CALL_TEXT:
            kind, member = _CALL_TEXT[item["type"]]
            data += self._write(f"{kind}.done", **self._place(item), **{member: item[member]})
        return data + self._write(_DONE, output_index=self._index, item=item), item

    def _whole(self, item: ResponseItem) -> bytes:
        data = self._added(item | {"status": "in_progress"})
        if item["type"] in _CALL_TEXT:
            _, member = _CALL_TEXT[item["type"]]
            data += self._delta(item, item[member])
        return data

    def _added(self, item: ResponseItem) -> bytes:
        _, member = _CALL_TEXT.get(item["type"], ("", ""))
        empty = item | {member: ""} if member else item
        return self._write(_ADDED, output_index=self._index, item=empty)

    def _delta(self, item: ResponseItem, text: str) -> bytes:
        kind, _ = _CALL_TEXT[item["type"]]
        return self._write(f"{kind}.delta", **self._place(item), delta=text)

    def _place(self, item: ResponseItem) -> ResponseItem:
        return {"item_id": item["id"], "output_index": self._index}

    def _item(self, status: str) -> ResponseItem:
        function = {**self._call["function"], "arguments": "".join(self._texts)}
        whole = {"id": self._call["id"], "function": function}
        return call_item(self._turn_id, self._index, whole, self._offered, status)


def _thought(text: str) -> ResponseItem:
    return {"type": "reasoning_text", "text": text}
