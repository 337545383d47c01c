"""The clock of an episode, which stands while no engine can answer."""

from seamlessflow.producers.agents.serving import VALID_S, ServingTime
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

    def beat(self, state: str, worker: str = "w0", age_s: float = 0, **changes: str) -> None:
        at_ms = self.now_ms() - round(1000 * age_s)
        self.serving.note([heartbeat(worker=worker, state=state, at_ms=at_ms, **changes)])


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


def test_an_agent_of_20_s_has_all_of_them_around_a_training_step_of_30_s() -> None:
    clock = Clock()
    clock.beat("ready")
    assert clock.pass_s(8) == 8
    clock.beat("asleep")
    assert clock.pass_s(30) == 8
    clock.beat("ready")
    assert clock.pass_s(9) == 17
    clock.beat("ready")
    assert clock.pass_s(3) == 20


def test_the_clock_of_a_session_needs_an_engine_of_each_policy_that_it_may_call() -> None:
    clock = Clock()
    only_a, both = ["a"], ["b", "a"]
    assert (clock.serving.elapsed_s(only_a), clock.serving.elapsed_s(both)) == (0, 0)
    clock.beat("ready", "w0", policy="a")
    clock.pass_s(5)
    assert (clock.serving.elapsed_s(only_a), clock.serving.elapsed_s(both)) == (5, 0)
    clock.beat("ready", "w1", policy="b")
    clock.pass_s(5)
    assert (clock.serving.elapsed_s(only_a), clock.serving.elapsed_s(both)) == (10, 5)
    clock.beat("asleep", "w0", policy="a")
    clock.pass_s(5)
    assert (clock.serving.elapsed_s(only_a), clock.serving.elapsed_s(both)) == (10, 5)


def test_a_shared_engine_serves_the_policy_of_its_newest_heartbeat() -> None:
    clock = Clock()
    clock.serving.elapsed_s(["a"])
    clock.beat("ready", policy="a")
    clock.beat("ready", policy="b")
    clock.pass_s(5)
    assert (clock.serving.elapsed_s(["a"]), clock.serving.elapsed_s(["b"])) == (0, 0)
    clock.pass_s(1)
    assert clock.serving.elapsed_s(["b"]) == 1


def test_an_engine_that_names_no_policy_serves_all() -> None:
    clock = Clock()
    clock.serving.elapsed_s(["a"])
    clock.beat("ready", policy="")
    clock.pass_s(5)
    assert clock.serving.elapsed_s(["a"]) == 5


def test_the_time_in_which_engines_were_away_is_known_afterwards() -> None:
    clock = Clock()
    policies = ["a"]
    clock.serving.elapsed_s(policies)
    clock.beat("ready", policy="a")
    issued_ms = clock.now_ms()
    clock.pass_s(4)
    clock.beat("asleep", policy="a")
    clock.pass_s(30)
    assert clock.serving.stood_s(policies, issued_ms) == 30
    clock.beat("ready", policy="a")
    clock.pass_s(4)
    clock.beat("asleep", policy="a")
    clock.pass_s(10)
    assert clock.serving.stood_s(policies, issued_ms) == 40
    assert clock.serving.stood_s(policies, issued_ms + 14_000) == 30
    assert clock.serving.stood_s(policies, clock.now_ms()) == 0
