"""The OpenAI Responses dialect, to the agent: a streamed answer as server-sent events. Pure.

One item is open at a time, so that agents which know but one follow. A stream that fails says so
twice: `error`, which the official client raises, and `response.failed`.
"""

from collections.abc import Sequence
from typing import Any

import orjson

from producers.gateway.dialects.canonical import CanonicalRequest
from producers.gateway.dialects.dialect import ChoiceDelta
from producers.gateway.dialects.openai_responses.items import Item
from producers.gateway.dialects.openai_responses.open_items import (
    EventWriter,
    OpenCall,
    OpenMessage,
    OpenReasoning,
)
from producers.gateway.dialects.openai_responses.response import (
    ResponseStates,
    is_cut,
    shown_scores,
    wants_encrypted,
)
from producers.gateway.dialects.openai_responses.tools import offered
from producers.gateway.dialects.openai_shape import error_body
from producers.gateway.dialects.scores import scores
from producers.gateway.errors import ApiError
from schemas.records import ReplyFinished


class ResponseEvents:
    """Makes the events of one streamed answer; each method gives bytes to send."""

    def __init__(self, turn_id: str, created: int, request: CanonicalRequest) -> None:
        self._turn_id = turn_id
        self._request = request
        self._states = ResponseStates(turn_id, created, request)
        self._offered = offered(request.echoed.get("tools", ()))
        self._encrypted = wants_encrypted(request)
        self._write = EventWriter()
        self._open: OpenMessage | OpenReasoning | OpenCall | None = None
        self._items: list[Item] = []
        self._scores: list[Item] = []
        self._begun = False
        self._silent = True

    def open(self, prompt_tokens: int) -> bytes:
        """The response, before anything of it."""
        self._begun = True
        state = orjson.Fragment(self._states.begun())
        return self._write("response.created", response=state) + self._write(
            "response.in_progress", response=state
        )

    def delta(self, choice: int, piece: ChoiceDelta) -> bytes:
        """More of the items; a call that is open goes on first."""
        if self._request.wants_logprobs:
            self._scores += self._scored(piece)
        added = orjson.loads(piece.delta)
        calls = added.get("tool_calls") or ()
        data = b"".join(self._more_of_call(call) for call in calls if "id" not in call)
        if text := added.get("reasoning_content"):
            data += self._think(text)
        if text := added.get("content"):
            data += self._say(text)
        return data + b"".join(self._call(call) for call in calls if "id" in call)

    def finish(self, choice: int, answer: ReplyFinished) -> bytes:
        """The end of the last item; an answer of nothing is an empty message."""
        data = self._message() if self._silent else b""
        if isinstance(self._open, OpenMessage) and self._scores:
            data += self._say("")
        return data + self._close("incomplete" if is_cut(answer) else "completed")

    def end(self, answers: Sequence[ReplyFinished]) -> bytes:
        """The end of the response, with all of it."""
        (answer,) = answers
        state = orjson.Fragment(self._states.finished(self._items, answer))
        kind = "response.incomplete" if is_cut(answer) else "response.completed"
        return self._write(kind, response=state)

    def failed(self, error: ApiError) -> bytes:
        """What ends a stream that fails after it began, if only with a sign of life."""
        data = b"" if self._begun else self.open(0)
        told = orjson.loads(error_body(error))["error"]
        flat = {name: told[name] for name in ("code", "message", "param")}
        state = orjson.Fragment(self._states.failed(self._items, error))
        data += self._write("error", **flat, error=told)
        return data + self._write("response.failed", response=state)

    def keep_alive(self) -> bytes:
        """A comment, which every reader of events skips."""
        return b": keep-alive\n\n"

    def _think(self, text: str) -> bytes:
        if isinstance(self._open, OpenReasoning):
            return self._open.more(text)
        data = self._close("completed")
        self._open = opened = OpenReasoning(
            self._write, self._turn_id, len(self._items), self._encrypted
        )
        return data + opened.begin() + opened.more(text)

    def _say(self, text: str) -> bytes:
        data = self._message()
        assert isinstance(self._open, OpenMessage)
        scored, self._scores = self._scores, []
        return data + self._open.more(text, scored)

    def _message(self) -> bytes:
        """Opens one, unless one is."""
        if isinstance(self._open, OpenMessage):
            return b""
        data = self._close("completed")
        self._silent = False
        self._open = opened = OpenMessage(self._write, self._turn_id, len(self._items))
        return data + opened.begin()

    def _call(self, call: dict[str, Any]) -> bytes:
        data = self._close("completed")
        self._silent = False
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
