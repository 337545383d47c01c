"""Answers whose client left before it had them."""

from typing import Any

import pytest

from seamlessflow.schemas.records import Record
from tests.builders.records.content import ids
from tests.builders.records.sessions import (
    cancelled,
    completed,
    dispatched,
    joined,
    started,
    undelivered,
)
from tests.builders.trajectories.session_builder import finished, session_after


@pytest.mark.parametrize(("train", "reason"), [(False, "undelivered"), (True, "")])
def test_an_answer_that_no_client_got_is_marked_and_trained_only_by_setting(
    train: bool, reason: str
) -> None:
    built = session_after(
        started(train_undelivered=train), dispatched(), completed(ids(7)), undelivered()
    )

    made = finished(built)

    assert (made.nodes[1].delivered, made.nodes[1].masked_reason) == (False, reason)
    assert made.masked_tokens == ({reason: 1} if reason else {})


LATER: Any = {"parent_node": 1, "parent_end": 1, "prompt_length": 4}


@pytest.mark.parametrize(
    ("events", "delivered"),
    [
        ((undelivered(),), False),
        ((undelivered(), joined()), True),
        ((joined(), undelivered()), False),
        ((undelivered(), joined(), undelivered()), True),
        ((undelivered(), joined(), undelivered(command_id="again")), False),
        ((undelivered(), started("c", ids(3), **LATER)), True),
        ((started("c", ids(3), **LATER), undelivered()), True),
        ((cancelled(command_id="late"),), False),
    ],
)
def test_a_retry_or_a_prompt_that_goes_on_from_it_delivers_an_answer(
    events: tuple[Record, ...], delivered: bool
) -> None:
    begun = started(train_undelivered=False), dispatched(), completed(ids(7))

    made = finished(session_after(*begun, *events))

    assert made.nodes[1].delivered == delivered
    assert made.nodes[1].masked_reason == ("" if delivered else "undelivered")


@pytest.mark.parametrize(
    ("kept", "finish_reason", "delivered"),
    [
        *((1, "stop", False), (3, "stop", False), (4, "length", False), (5, "length", True)),
        *((4, "stop", True), (5, "stop", True), (4, "tool_calls", True)),
    ],
)
def test_only_a_prompt_with_the_whole_answer_delivers_it(
    kept: int, finish_reason: str, delivered: bool
) -> None:
    """A fallback's answer often shares the first tokens; a stop token need not be rendered."""
    answer = completed(ids(5, 6, 7, 8, 9), finish_reason=finish_reason)
    behind = started("b", ids(3), parent_node=1, parent_end=kept)

    made = finished(
        session_after(started(train_undelivered=False), dispatched(), answer, undelivered(), behind)
    )

    assert made.nodes[1].delivered == delivered
    assert made.nodes[1].masked_reason == ("" if delivered else "undelivered")


HEDGED: Any = {"parent_node": 0, "parent_end": 2, "prompt_length": 2}


@pytest.mark.parametrize(
    ("later", "reasons"),
    [
        ((), ["", "abandoned"]),
        ((started("c", ids(3), parent_node=3, parent_end=1),), ["", "abandoned"]),
        ((undelivered("a", command_id="both"),), ["abandoned", "undelivered"]),
    ],
)
def test_of_several_samples_one_that_its_client_got_is_trained(
    later: tuple[Record, ...], reasons: list[str]
) -> None:
    """A hedged call leaves a younger sample behind that no client waited for."""
    setting: Any = {"train_undelivered": False}
    prompt = started("b", b"").prompt_hash

    made = finished(
        session_after(
            *(started(**setting), dispatched(), completed(ids(6, 7, 8))),
            *(started("b", b"", **HEDGED, **setting), dispatched("b")),
            completed(ids(6, 9, 9), "b", b"", prompt_hash=prompt, prompt_length=2),
            *(undelivered("b"), *later),
        )
    )

    assert [made.nodes[1].masked_reason, made.nodes[3].masked_reason] == reasons
