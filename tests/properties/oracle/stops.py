"""An oracle of turns that a rule ends: the place follows from the whole list of tokens."""

from collections.abc import Sequence

from seamlessflow.schemas import records as r
from tests.builders.trajectories.oracle import ExpectedTurn
from tests.properties.simulation.stop_rule import DIVISOR, FEWEST, VERDICT


def check_stop(turn: ExpectedTurn) -> None:
    """Check that a turn under the rule ended at the first token where it had to, and not before.

    A token that ends the turn itself is not judged, and a stop string wins over a verdict at it.
    """
    end = turn.outputs[-1] if turn.outputs else None
    if turn.started.control is None or not isinstance(end, r.TurnCompleted):
        return
    assert not end.control_error, f"the rule was given up: {end.control_error}"
    tokens = [sample.token for sample in turn.sampled]
    at = stops_at(tokens)
    if end.control:
        recorded = (end.control, end.control_at, end.finish_reason)
        assert recorded == (VERDICT, len(tokens), "length"), f"stopped as {recorded}"
        assert at == len(tokens), f"stopped at {len(tokens)}, not at {at}"
    else:
        ended_itself = end.finish_reason == "stop"
        assert not at or (ended_itself and at == len(tokens)), f"not stopped at {at}"


def stops_at(tokens: Sequence[int]) -> int:
    """Return the number of tokens behind which the rule ends the turn; 0: it does not."""
    ends = range(FEWEST, len(tokens) + 1)
    return next((end for end in ends if sum(tokens[:end]) % DIVISOR == 0), 0)
