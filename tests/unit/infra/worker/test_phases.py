"""Times of the phases of a move."""

from seamlessflow.infra.worker.phases import PhaseTimes


def test_a_phase_ends_where_the_next_begins_and_may_come_again() -> None:
    times = PhaseTimes(iter([10.0, 10.002, 10.0025, 10.1025]).__next__)
    for phase in ("wake", "load", "wake"):
        times.end(phase)
    assert times.by_name == {"wake": 102.0, "load": 0.5}
    assert times.total_ms == 102
