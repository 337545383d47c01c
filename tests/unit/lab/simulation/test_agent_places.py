"""Sessions that wait for an agent, since `agents.concurrency` bounds those that are played."""

from dataclasses import replace
from pathlib import Path

from seamlessflow.lab.simulation.simulator import SimulatedRun, simulate
from seamlessflow.scheduler.settings import PacingSection, RunSection, SchedulerSection
from tests.builders.scheduler.cluster import cluster, workload
from tests.builders.scheduler.inputs import BOTH, scheduler_settings

STEPS, GROUPS, SIZE = 4, 2, 4
SESSIONS = 2 * GROUPS * SIZE
"""Sessions of the groups that lag 1 admits at once."""


def run(sessions: float, timeout_s: float = 600) -> SimulatedRun:
    made = cluster({"a": BOTH, "b": BOTH}, sample_ms=100, train_ms=10, samples=GROUPS * SIZE)
    return simulate(
        scheduler_settings(
            RunSection(steps=STEPS, groups_per_step=GROUPS, group_size=SIZE, lag=1),
            SchedulerSection(policy="colocated", min_dwell_s=0),
            PacingSection(tasks=Path("made up"), task_timeout_s=timeout_s),
        ),
        replace(made, sessions=sessions),
        workload(),
    )


def test_places_for_all_sessions_change_nothing() -> None:
    free, enough = run(float("inf")), run(SESSIONS)

    assert (enough.control, enough.agents_full_s) == (free.control, 0)
    assert enough.sessions_wanted == SESSIONS


def test_fewer_places_let_sessions_wait_and_steps_take_longer() -> None:
    free, few = run(float("inf")), run(1)

    assert len(few.tokens) == len(free.tokens) == STEPS
    assert few.ended_s > free.ended_s
    assert few.sessions_wanted == SESSIONS
    assert 0 < few.agents_full_s <= few.ended_s


def test_a_session_that_is_stopped_gives_its_place_to_the_next() -> None:
    stopped = run(1, timeout_s=0.01)

    assert stopped.overdue > 0
    assert stopped.agents_full_s > 0
    assert "longer than pacing.task_timeout_s" in stopped.vain
