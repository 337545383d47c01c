"""Turns, lengths, sessions and waits of a recorded run, and the sections that they become."""

from collections.abc import Iterable
from dataclasses import replace
from random import Random

import orjson
import pytest

from seamlessflow.infra.device_model.settings import LengthsSection, drawn_tokens
from seamlessflow.infra.kafka.client import Received
from seamlessflow.lab.calibration.recorded_run import (
    mean_hop_s,
    recorded_session,
    recorded_turns,
    recorded_weights,
)
from seamlessflow.lab.calibration.sections import at_scale, under
from seamlessflow.lab.calibration.workload import measured_lengths, measured_workload
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.tokens import pack
from seamlessflow.schemas.topics import SESSIONS
from tests.builders.records import control as c
from tests.builders.records import sessions as s
from tests.builders.records.commands import request_turn
from tests.builders.trainer.trajectories import Run, trajectory

TOKENS = pack((5, 6, 7))
SESSION = "g.0.0"
GROUPS, SIZE = 300, 8


def turns_of_a_session() -> list[Record]:
    return [
        s.opened(session_id=SESSION),
        s.started("a", session_id=SESSION, at_ms=1_010),
        s.dispatched("a", session_id=SESSION),
        s.completed(TOKENS, "a", session_id=SESSION, at_ms=2_000),
        s.started("b", session_id=SESSION, at_ms=2_500),
        s.dispatched("b", session_id=SESSION),
        s.progressed(pack((1, 2, 3, 4)), "b", session_id=SESSION, at_ms=3_000),
        s.completed(TOKENS, "b", session_id=SESSION, token_offset=4, at_ms=4_000),
    ]


def read(records: Iterable[Record]) -> list[Received]:
    """Return the records as read from partition 0."""
    return [
        Received(SESSIONS.name, 0, offset, 0, None, (), record)
        for offset, record in enumerate(records)
    ]


def test_times_are_those_between_the_records() -> None:
    requests = [request_turn("a", issued_at_ms=1_000), request_turn("b", issued_at_ms=2_470)]
    turns = recorded_turns(read(turns_of_a_session()), requests)
    sessions = [
        recorded_session(
            trajectory(
                [
                    Run((1, 2), "prompt"),
                    Run((5, 6, 7), parent=0),
                    Run((1,), "prompt", "t1", 1),
                    Run((5, 6), turn="t1", parent=2),
                ]
            )
        )
    ]

    workload = measured_workload(
        [session for session in sessions if session is not None],
        turns,
        [c.admitted("g", at_ms=500), c.ready("g", at_ms=4_200)],
    )

    assert [turn.sampled for turn in turns] == [3, 7]
    assert mean_hop_s(turns) == pytest.approx(0.02)
    assert workload["tool_s"] == pytest.approx(0.5)
    assert (workload["start_s"], workload["end_s"]) == pytest.approx((0.51, 0.2))
    assert (workload["turns"], workload["prompt_tokens"], workload["tool_tokens"]) == (2, 2, 1)
    assert (workload["most_tokens"], workload["success"]) == (3, 1.0)


def test_a_turn_that_moved_is_left_out() -> None:
    again = s.dispatched("a", 2, session_id=SESSION)
    moved = s.completed(TOKENS, "a", session_id=SESSION, dispatch=2)

    assert not recorded_turns(read([*turns_of_a_session()[:3], again, moved]))


def test_a_completion_behind_a_cancellation_is_left_out() -> None:
    begun, ended = turns_of_a_session()[:3], turns_of_a_session()[3]
    cancelled = s.cancelled("a", session_id=SESSION)

    assert not recorded_turns(read([*begun, cancelled, ended]))
    assert recorded_turns(read([*begun, ended, cancelled]))


def test_sessions_of_evaluations_and_those_cut_short_are_left_out() -> None:
    assert recorded_session(trajectory([Run((1,), "prompt")], purpose="eval")) is None
    assert recorded_session(trajectory([Run((1,), "prompt")], status="aborted")) is None


def test_success_is_by_the_rewards_that_the_run_weighs() -> None:
    settings = orjson.dumps({"trainer": {"rewards": {"test": 0.5, "format": 0.0}}})
    lineage = r.LineageStarted(at_ms=0, policy="p", lineage="a", step=0, settings=settings)
    assert recorded_weights([lineage]) == {"test": 0.5}
    assert recorded_weights([]) == {"reward": 1.0}

    named = tuple(r.Reward(name=name, value=1.0) for name in ("test", "format", "reward"))
    turn = r.Reward(value=1.0, scope="turn", turn_id="t0")
    record = replace(trajectory([Run((1,), "prompt")]), rewards=(*named, turn))
    session = recorded_session(record, {"test": 0.5})
    assert session is not None and session.reward == 0.5


def test_a_value_that_is_given_counts_over_a_measured_one() -> None:
    measured = {"device_model": {"step_s": 1.0, "rates": {"load_s": 2.0}}, "run": {"lag": 1}}
    settings = {"device_model": {"rates": {"load_s": 3.0}}, "pacing": {}}

    assert under(settings, measured) == {
        "device_model": {"step_s": 1.0, "rates": {"load_s": 3.0}},
        "run": {"lag": 1},
        "pacing": {},
    }


def test_of_a_rehearsal_the_times_of_devices_are_divided_by_its_scale() -> None:
    sections = {"device_model": {"rates": {"load_s": 0.5}, "step_s": 1.0}, "run": {"group_size": 4}}

    assert at_scale(sections, 0.2) == {
        "device_model": {"rates": {"load_s": 2.5}, "step_s": 5.0},
        "run": {"group_size": 4},
    }
    assert at_scale(sections, 1) == sections


def drawn(section: LengthsSection) -> list[tuple[str, int]]:
    """Return turns that the simulator would draw."""
    draws = Random(0)
    turns = []
    for number in range(GROUPS):
        shared = draws.gauss()
        turns += [
            (f"g-{number}", drawn_tokens(section, shared, draws.gauss())) for _ in range(SIZE)
        ]
    return turns


@pytest.mark.parametrize("most", [100_000, 700])
def test_what_was_drawn_is_measured(most: int) -> None:
    section = LengthsSection(turn_tokens=400, spread=0.6, most_tokens=most, prompt_effect=0.4)

    turns = drawn(section)
    measured = LengthsSection(**measured_lengths(turns))

    again = drawn(measured)
    assert measured.turn_tokens == pytest.approx(400, rel=0.1)
    assert sum(tokens for _, tokens in again) == pytest.approx(
        sum(tokens for _, tokens in turns), rel=0.02
    )
    if most == 700:
        assert measured.most_tokens == 700
    else:
        assert measured.spread == pytest.approx(0.6, rel=0.05)
        assert measured.prompt_effect == pytest.approx(0.4, abs=0.07)


def test_turns_of_one_length_have_no_spread() -> None:
    measured = measured_lengths([("a", 7), ("a", 7), ("b", 7)])

    expected = {"turn_tokens": 7, "spread": 0, "most_tokens": 7, "prompt_effect": 0}
    assert measured == pytest.approx(expected)
    assert measured_lengths([]) == {}
