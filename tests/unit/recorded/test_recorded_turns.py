"""Recorded turns, read from folded sessions."""

from dataclasses import replace

import numpy as np

from seamlessflow.recorded.stops import recorded_turns
from seamlessflow.schemas.records import TokenTensor
from tests.builders.records.content import ids
from tests.builders.records.sessions import (
    cancelled,
    completed,
    dispatched,
    progressed,
    started,
)
from tests.builders.trajectories.session_builder import session_after


def likeliest(begin: int, rows: list[list[float]]) -> tuple[TokenTensor, ...]:
    data = np.array(rows, "<f4")
    return (
        TokenTensor(
            name="topk_logprobs",
            from_token=begin,
            to_token=begin + len(rows),
            dtype="float32",
            shape=data.shape,
            data=data.tobytes(),
        ),
    )


def test_a_turn_has_the_tokens_of_all_its_records_with_what_was_likely_beside_each() -> None:
    built = session_after(started(), dispatched())
    built.apply(progressed(ids(7), tensors=likeliest(0, [[-0.5, -1.5]])))
    end = completed(ids(8, 9), token_offset=1, reasoning_tokens=2)
    built.apply(replace(end, tensors=likeliest(1, [[-0.25, -2.0], [-0.125, -3.0]])))
    (turn,) = recorded_turns(built.session)
    tokens = list(turn.tokens(2))
    assert [token.token_id for token in tokens] == [7, 8, 9]
    assert [list(token.top) for token in tokens] == [[-0.5, -1.5], [-0.25, -2.0], [-0.125, -3.0]]
    assert [token.thinking for token in tokens] == [True, False, False]
    assert [list(token.top) for token in turn.tokens(1)] == [[-0.5], [-0.25], [-0.125]]


def test_turns_without_likeliest_tokens_have_none_and_unfinished_ones_are_left_out() -> None:
    built = session_after(started(), dispatched(), completed(ids(7)))
    built.apply(started("b"), dispatched(turn_id="b"), cancelled(turn_id="b"))
    (turn,) = recorded_turns(built.session)
    assert (turn.top, turn.facts.prompt_length) == (0, built.turn().started.prompt_length)
