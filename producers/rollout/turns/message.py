"""The assistant message of a turn, parsed while its tokens come. Pure; used by `dispatch.py`.

The whole is parsed as a single text. It has the prefill at the end of the prompt (a forced tool
call), the tokens of earlier dispatches, and those sampled now. Deltas hold only what earlier
dispatches have not written.
"""

from collections.abc import Collection
from dataclasses import replace

from seamlessflow.infra.rendering.completion import (
    NOTHING,
    MessageDelta,
    MessageStream,
    ParsedMessage,
)
from seamlessflow.producers.rollout.turns.assistant_message import delta_json
from seamlessflow.producers.rollout.turns.one_call import OneCall
from seamlessflow.producers.rollout.turns.stop_text import StopText, joined
from seamlessflow.schemas.records import GenerateTurn
from seamlessflow.schemas.tokens import TOKEN_BYTES


class TurnMessage:
    """The message so far; `stream` parses behind the prompt without its prefill, `ends` end a turn.

    Tokens of the prefill count where the stream is fed, but not in the completion.
    """

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
            # Written by an earlier dispatch: parse it for the state, drop the delta.
            written = joined(self._opening, self._stream.feed(request.completion_ids))
            self._opening, self._calls_given = NOTHING, len(written.tool_calls)

    @property
    def may_end(self) -> bool:
        """True if the text may end the turn: by a stop string or by the only call allowed."""
        return self._stops is not None or self._one_call is not None

    def feed(self, ids: bytes) -> int | None:
        """Parse new tokens; return the length of the completion if its text has ended it."""
        if ids:
            self._add_delta(self._stream.feed(ids))
        watched = [each for each in (self._stops, self._one_call) if each is not None]
        ends = [each.found_after for each in watched if each.found_after is not None]
        return max(0, min(ends) - self._prefill) if ends else None

    def finish(self) -> ParsedMessage:
        """Return the whole message; its tokens of thinking are those that were sampled."""
        self._add_delta(self._stream.finish())
        message = self._stream.message
        if message.reasoning_tokens is None:
            return message
        return replace(message, reasoning_tokens=max(0, message.reasoning_tokens - self._prefill))

    @property
    def stop_sequence(self) -> str | None:
        """The stop string that ended the message, or None."""
        return None if self._stops is None else self._stops.found

    def take_delta(self) -> bytes | None:
        """Return the addition since the last call, as JSON, or None if there is none."""
        delta = delta_json(self._delta, self._turn_id, self._calls_given)
        self._calls_given += len(self._delta.tool_calls)
        self._delta = NOTHING
        return delta

    def _add_delta(self, new: MessageDelta) -> None:
        # The prefill's text goes with the first token, so that only one dispatch writes it.
        if self._opening:
            new, self._opening = joined(self._opening, new), NOTHING
        self._delta = joined(self._delta, new)


def template_prompt(request: GenerateTurn) -> bytes:
    """Return the prompt without its prefill."""
    return request.prompt_ids[: len(request.prompt_ids) - TOKEN_BYTES * request.prefill]


def prefill(request: GenerateTurn) -> bytes:
    """Return the prefill: the end of the prompt, with which the completion begins."""
    return request.prompt_ids[len(request.prompt_ids) - TOKEN_BYTES * request.prefill :]
