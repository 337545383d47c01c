"""Streamed answers of the OpenAI Responses dialect, as server-sent events. Pure.

One item is open at a time, because some agents can follow only one. A stream that fails ends with
two events: `error`, which OpenAI's client raises, and `response.failed`.
"""

from collections.abc import Sequence
from typing import Any

import orjson

from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.producers.gateway.dialects.dialect import ChoiceDelta
from seamlessflow.producers.gateway.dialects.openai_responses.items import Item
from seamlessflow.producers.gateway.dialects.openai_responses.open_items import (
    EventWriter,
    OpenCall,
    OpenMessage,
    OpenReasoning,
)
from seamlessflow.producers.gateway.dialects.openai_responses.response import (
    ResponseStates,
    is_cut,
    shown_scores,
    wants_encrypted,
)
from seamlessflow.producers.gateway.dialects.openai_shape import KEEP_ALIVE, error_body
from seamlessflow.producers.gateway.dialects.scores import scores
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.schemas.records import ReplyFinished


class ResponseEvents:
    """The events of one streamed answer; each method returns the bytes to send."""

    def __init__(self, turn_id: str, created: int, request: CanonicalRequest) -> None:
        self._turn_id = turn_id
        self._request = request
        self._states = ResponseStates(turn_id, created, request)
        self._offered = request.echoed.get("offered", {})
        self._encrypted = wants_encrypted(request)
        self._write = EventWriter()
        self._open: OpenMessage | OpenReasoning | OpenCall | None = None
        self._items: list[Item] = []
        self._scores: list[Item] = []
        self._begun = False
        self._has_output = False

    def open(self, prompt_tokens: int) -> bytes:
        """Begin the response, without items."""
        self._begun = True
        state = orjson.Fragment(self._states.begun())
        return self._write("response.created", response=state) + self._write(
            "response.in_progress", response=state
        )

    def delta(self, choice: int, piece: ChoiceDelta) -> bytes:
        """Write the next part of the items."""
        if self._request.wants_logprobs:
            self._scores += self._scored(piece)
        added = orjson.loads(piece.delta)
        data = b""
        if text := added.get("reasoning_content"):
            data += self._add_reasoning(text)
        if text := added.get("content"):
            data += self._add_text(text)
        for call in added.get("tool_calls") or ():
            data += self._open_call(call) if "id" in call else self._more_of_call(call)
        return data

    def finish(self, choice: int, answer: ReplyFinished) -> bytes:
        """End the last item. An empty answer becomes an empty message."""
        data = b"" if self._has_output else self._open_message()
        if isinstance(self._open, OpenMessage) and self._scores:
            # Log-probs behind the last text would be lost with the message.
            data += self._add_text("")
        return data + self._close("incomplete" if is_cut(answer) else "completed")

    def end(self, answers: Sequence[ReplyFinished]) -> bytes:
        """End the response, with all of its items."""
        (answer,) = answers
        state = orjson.Fragment(self._states.finished(self._items, answer))
        kind = "response.incomplete" if is_cut(answer) else "response.completed"
        return self._write(kind, response=state)

    def failed(self, error: ApiError) -> bytes:
        """End a stream that failed after it began, even if only a keep-alive was sent."""
        data = b"" if self._begun else self.open(0)
        shown = orjson.loads(error_body(error))["error"]
        flat = {name: shown[name] for name in ("code", "message", "param")}
        state = orjson.Fragment(self._states.failed(self._items, error))
        data += self._write("error", **flat, error=shown)
        return data + self._write("response.failed", response=state)

    def keep_alive(self) -> bytes:
        """Write a comment, which every client skips."""
        return KEEP_ALIVE

    def _add_reasoning(self, text: str) -> bytes:
        if isinstance(self._open, OpenReasoning):
            return self._open.more(text)
        data = self._close("completed")
        self._open = opened = OpenReasoning(
            self._write, self._turn_id, len(self._items), self._encrypted
        )
        return data + opened.begin() + opened.more(text)

    def _add_text(self, text: str) -> bytes:
        data = self._open_message()
        assert isinstance(self._open, OpenMessage)  # nosec B101 # for the type checker
        scored, self._scores = self._scores, []
        return data + self._open.more(text, scored)

    def _open_message(self) -> bytes:
        """Open a message, unless one is open."""
        if isinstance(self._open, OpenMessage):
            return b""
        data = self._close("completed")
        self._has_output = True
        self._open = opened = OpenMessage(self._write, self._turn_id, len(self._items))
        return data + opened.begin()

    def _open_call(self, call: dict[str, Any]) -> bytes:
        data = self._close("completed")
        self._has_output = True
        self._open = opened = OpenCall(
            self._write, self._turn_id, len(self._items), call, self._offered
        )
        data += opened.begin()
        arguments = call["function"].get("arguments")
        return data + opened.more(arguments) if arguments else data

    def _more_of_call(self, call: dict[str, Any]) -> bytes:
        if not isinstance(self._open, OpenCall) or self._open.number != call["index"]:
            raise ValueError(f"more of call {call['index']} of {self._turn_id}, which has ended")
        return self._open.more(call["function"]["arguments"])

    def _close(self, status: str) -> bytes:
        if self._open is None:
            return b""
        data, item = self._open.close(status)
        self._items.append(item)
        self._open = None
        return data

    def _scored(self, piece: ChoiceDelta) -> list[Item]:
        most = self._request.sampling.top_logprobs
        scored = scores(piece.token_ids, piece.logprobs, piece.tensors, most, piece.from_token)
        return shown_scores(scored)
