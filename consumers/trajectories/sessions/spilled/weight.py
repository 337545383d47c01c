"""Estimate of the memory that an event adds to its session, from its sizes alone. Pure.

Measured with `tracemalloc` on recorded sessions: within a tenth of what sessions of 30 to 3,200
tokens a turn take. Output that a running turn keeps for retries is left out, since it is dropped
when the turn ends.
"""

from collections.abc import Callable, Mapping
from typing import Any

from seamlessflow.consumers.trajectories.sessions.session import Output
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record

_OPENED_BYTES = 3_500
_TURN_BYTES = 5_500
"""Of the record of about fifty fields, most of it."""
_OUTPUT_BYTES = 250
_OTHER_BYTES = 500
_MESSAGE_BYTES = 48


def weight(event: Record) -> int:
    """Return about how many bytes a session takes more once the event is applied."""
    measure = _MEASURES.get(type(event))
    return _OTHER_BYTES if measure is None else measure(event)


def _opened(event: r.SessionOpened) -> int:
    fork = event.fork
    if fork is None:
        return _OPENED_BYTES
    prompts = [turn.prompt for turn in fork.turns]
    prompts += () if fork.prompt is None else (fork.prompt,)
    copied = sum(
        len(prompt.ids) + sum(map(len, prompt.messages)) + _TURN_BYTES for prompt in prompts
    )
    return _OPENED_BYTES + copied + sum(len(turn.ids) + len(turn.message) for turn in fork.turns)


def _started(event: r.TurnStarted) -> int:
    messages = sum(map(len, event.new_messages)) + _MESSAGE_BYTES * len(event.new_messages)
    # The tokens stand in the record and in the tree.
    return _TURN_BYTES + 2 * len(event.suffix_ids) + messages + len(event.tools or b"")


def _output(event: Output) -> int:
    arrays = sum(len(tensor.data or b"") for tensor in event.tensors)
    return _OUTPUT_BYTES + len(event.token_ids) + len(event.logprobs) + arrays


def _completed(event: r.TurnCompleted) -> int:
    return _output(event) + len(event.message)


_MEASURES: Mapping[type[Record], Callable[[Any], int]] = {
    r.SessionOpened: _opened,
    r.TurnStarted: _started,
    r.TurnProgressed: _output,
    r.TurnInterrupted: _output,
    r.TurnCompleted: _completed,
}
