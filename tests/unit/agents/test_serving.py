"""The clock of an episode, which stands while no engine can answer."""

from producers.agents.serving import VALID_S, ServingTime
from tests.builders.records.fleet import heartbeat


class Clock:
    """Time that a test sets, in seconds."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.serving = ServingTime(lambda: self.now_s, self.now_ms)

    def now_ms(self) -> int:
        return round(1000 * self.now_s)

    def pass_s(self, seconds: float) -> float:
        """Let time pass; return how much of all of it counts."""
        self.now_s += seconds
        return self.serving.elapsed_s()

    def beat(
        self, state: str, worker: str = "w0", age_s: float = 0, process: str = "rollout"
    ) -> None:
        at_ms = self.now_ms() - round(1000 * age_s)
        self.serving.note([heartbeat(worker=worker, process=process, state=state, at_ms=at_ms)])


def test_all_time_counts_as_long_as_no_engine_was_heard_of() -> None:
    clock = Clock()
    assert clock.pass_s(60) == 60
    clock.beat("training", process="train")
    assert clock.pass_s(60) == 120


def test_the_clock_stands_until_an_engine_is_ready_and_goes_on_from_there() -> None:
    clock = Clock()
    clock.beat("starting")
    assert clock.pass_s(100) == 0
    clock.beat("ready")
    assert clock.pass_s(3) == 3
    clock.beat("ready")
    assert clock.pass_s(3) == 6
    clock.beat("asleep")
    assert clock.pass_s(30) == 6


def test_one_ready_engine_of_several_is_enough() -> None:
    clock = Clock()
    clock.beat("ready", "w0")
    clock.beat("asleep", "w1")
    assert clock.pass_s(5) == 5
    clock.beat("ready", "w1")
    clock.beat("paused", "w0")
    assert clock.pass_s(5) == 10
    clock.beat("failed", "w1")
    assert clock.pass_s(5) == 10


def test_an_engine_that_fell_silent_counts_for_as_long_as_its_last_heartbeat() -> None:
    clock = Clock()
    clock.beat("ready")
    assert clock.pass_s(1000) == VALID_S
    clock.beat("ready")
    assert clock.pass_s(1) == VALID_S + 1


def test_a_heartbeat_of_an_earlier_life_of_the_run_counts_for_nothing() -> None:
    clock = Clock()
    clock.beat("ready", age_s=3600)
    assert clock.pass_s(60) == 0
