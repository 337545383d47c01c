"""The assistant message of a turn, read while its tokens come. Pure; used by `turns.py`.

What is read is one text: the beginning that the prompt gave (a forced tool call), the tokens of
earlier dispatches, and what is sampled now. Deltas hold what earlier dispatches have not told.
"""

from infra.completion import NOTHING, MessageDelta, MessageStream, ParsedMessage
from producers.rollout.assistant_message import delta_json
from producers.rollout.stop_text import StopText, joined
from schemas.records import GenerateTurn

_TOKEN_BYTES = 4


class TurnMessage:
    """`stream` is that of the prompt without its prefill."""

    def __init__(self, request: GenerateTurn, stream: MessageStream) -> None:
        stops = request.sampling.stop
        self.stops = StopText(stream, stops, trimmed=not request.raw) if stops else None
        self._stream: MessageStream = self.stops or stream
        self._turn_id = request.turn_id
        self._prefill = request.prefill
        self._delta: MessageDelta = NOTHING
        self._opening = self._stream.feed(prefill(request)) if request.prefill else NOTHING
        self._calls_given = 0
        if request.completion_ids:
            told = joined(self._opening, self._stream.feed(request.completion_ids))
            self._opening, self._calls_given = NOTHING, len(told.tool_calls)

    def feed(self, ids: bytes) -> int | None:
        """Takes new tokens in; the length of the completion where a stop string has ended it."""
        if ids:
            self._tell(self._stream.feed(ids))
        if self.stops is None or self.stops.found_after is None:
            return None
        return max(0, self.stops.found_after - self._prefill)

    def finish(self) -> ParsedMessage:
        """The whole message."""
        self._tell(self._stream.finish())
        return self._stream.message

    @property
    def stop_sequence(self) -> str | None:
        """The stop string that ended the message, if one did."""
        return None if self.stops is None else self.stops.found

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
    return request.prompt_ids[: len(request.prompt_ids) - _TOKEN_BYTES * request.prefill]


def prefill(request: GenerateTurn) -> bytes:
    """The beginning of the answer that the prompt ends with."""
    return request.prompt_ids[len(request.prompt_ids) - _TOKEN_BYTES * request.prefill :]
