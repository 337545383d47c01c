"""Hops of turns: from a request to the start of its turn."""

from seamlessflow.lab.calibration.recorded_run import Hops, hops
from tests.builders.records import commands, sessions


def test_a_hop_lasts_from_the_request_to_the_start_of_its_turn() -> None:
    asked = [
        commands.request_turn("a", issued_at_ms=100),
        commands.close_session(),
        commands.request_turn("b", issued_at_ms=200),
    ]
    starts = [sessions.started("a", at_ms=104), sessions.started("b", at_ms=212)]
    assert hops(asked, starts) == Hops([4, 12])


def test_a_repeated_request_counts_from_the_first_and_one_without_a_start_not_at_all() -> None:
    asked = [commands.request_turn("a", issued_at_ms=ms) for ms in (100, 150)]
    asked.append(commands.request_turn("refused", issued_at_ms=100))
    starts = [sessions.started("a", at_ms=160), sessions.started("of an older log", at_ms=1)]
    assert hops(asked, starts) == Hops([60])


def test_mean_and_largest_hops() -> None:
    assert (Hops([]).mean_ms, Hops([]).p95_ms) == (0, 0)
    measured = Hops(list(range(1, 101)))
    assert (measured.mean_ms, measured.p95_ms) == (50.5, 96)


def test_a_hop_between_machines_whose_clocks_differ_is_not_less_than_nothing() -> None:
    assert hops([commands.request_turn("a", issued_at_ms=100)], [sessions.started("a")]) == Hops(
        [0]
    )
