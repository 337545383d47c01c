"""The assistant message of a turn, read while its tokens come. Pure; used by `turns.py`.

What is read is one text: the beginning that the prompt gave (a forced tool call), the tokens of
earlier dispatches, and what is sampled now. Deltas hold what earlier dispatches have not told.
"""

from collections.abc import Collection
from dataclasses import replace

from infra.rendering.completion import NOTHING, MessageDelta, MessageStream, ParsedMessage
from producers.rollout.turns.assistant_message import delta_json
from producers.rollout.turns.one_call import OneCall
from producers.rollout.turns.stop_text import StopText, joined
from schemas.records import GenerateTurn
from schemas.tokens import TOKEN_BYTES


class TurnMessage:
    """`stream` is that of the prompt without its prefill, `ends` the tokens that end a turn."""

    def __init__(
        self, request: GenerateTurn, stream: MessageStream, ends: Collection[int] = ()
    ) -> None:
        stops, one_call = request.sampling.stop, request.sampling.one_tool_call
        self._one_call = OneCall(stream, ends) if one_call else None
        inner: MessageStream = self._one_call or stream
        self._stops = StopText(inner, stops, trimmed=not request.raw) if stops else None
        self._stream: MessageStream = self._stops or inner
        self._turn_id = request.turn_id
        self._prefill = request.prefill
        self._delta: MessageDelta = NOTHING
        self._opening = self._stream.feed(prefill(request)) if request.prefill else NOTHING
        self._calls_given = 0
        if request.completion_ids:
            told = joined(self._opening, self._stream.feed(request.completion_ids))
            self._opening, self._calls_given = NOTHING, len(told.tool_calls)

    @property
    def may_end(self) -> bool:
        """Whether what is read may end the turn."""
        return self._stops is not None or self._one_call is not None

    def feed(self, ids: bytes) -> int | None:
        """Takes new tokens in; the length of the completion where a stop string, or the only call
        allowed, has ended it."""
        if ids:
            self._tell(self._stream.feed(ids))
        watched = [each for each in (self._stops, self._one_call) if each is not None]
        ends = [each.found_after for each in watched if each.found_after is not None]
        return max(0, min(ends) - self._prefill) if ends else None

    def finish(self) -> ParsedMessage:
        """The whole message; tokens of thinking are those that were sampled."""
        self._tell(self._stream.finish())
        message = self._stream.message
        if message.reasoning_tokens is None:
            return message
        return replace(message, reasoning_tokens=max(0, message.reasoning_tokens - self._prefill))

    @property
    def stop_sequence(self) -> str | None:
        """The stop string that ended the message, if one did."""
        return None if self._stops is None else self._stops.found

    def take_delta(self) -> bytes | None:
        """What is new since the last call, as JSON; None where nothing is."""
        delta = delta_json(self._delta, self._turn_id, self._calls_given)
        self._calls_given += len(self._delta.tool_calls)
        self._delta = NOTHING
        return delta

    def _tell(self, new: MessageDelta) -> None:
        """What the prefill gives comes with the first token, so that it is told but once."""
        if self._opening:
            new, self._opening = joined(self._opening, new), NOTHING
        self._delta = joined(self._delta, new)


def template_prompt(request: GenerateTurn) -> bytes:
    """The prompt without the beginning of the answer."""
    return request.prompt_ids[: len(request.prompt_ids) - TOKEN_BYTES * request.prefill]


def prefill(request: GenerateTurn) -> bytes:
    """The beginning of the answer that the prompt ends with."""
    return request.prompt_ids[len(request.prompt_ids) - TOKEN_BYTES * request.prefill :]
