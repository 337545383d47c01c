"""Groups beyond a batch: shorter runs under long tails, and none of them is lost or used twice."""

from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from scheduler.settings import PacingSection, RunSection, SchedulerSection
from scheduler.simulation.simulator import SimulatedRun, simulate
from schemas import records as r
from tests.builders.scheduler.cluster import cluster, workload
from tests.builders.scheduler.inputs import BOTH, scheduler_settings

B, SIZE, STEPS = 4, 4, 20
WORKERS = {f"w{number}": BOTH for number in range(4)}


@cache
def run(extra: float, longest_s: float = 1e6) -> SimulatedRun:
    """Return a synchronous run of sessions with log-normal lengths, where each has a row."""
    return simulate(
        scheduler_settings(
            RunSection(steps=STEPS, groups_per_step=B, group_size=SIZE, lag=0),
            SchedulerSection(policy="colocated", min_dwell_s=0),
            PacingSection(tasks=Path("made up"), extra_groups=extra),
        ),
        cluster(WORKERS, 1000, 1000, B * SIZE, rows=2 * SIZE),
        workload(spread=1.0),
        longest_s,
    )


def trained(outcome: SimulatedRun) -> Counter[str]:
    commits = [record for record in outcome.control if isinstance(record, r.StepCommitted)]
    return Counter(group.group_id for commit in commits for group in commit.groups)


def test_twice_the_groups_and_recycling_make_a_run_shorter_than_waiting_for_all() -> None:
    assert run(1.0).ended_s < 0.75 * run(0).ended_s
    assert max(run(0).ages) == 0 < max(run(1.0).ages)


@pytest.mark.parametrize("longest_s", [30, 1e6])
def test_every_group_begun_is_in_one_step_or_still_under_way(longest_s: float) -> None:
    outcome = run(1.0, longest_s)
    steps, ledger = trained(outcome), outcome.view.state.ledger

    begun = {one.group_id for one in outcome.control if isinstance(one, r.GroupAdmitted)}
    assert set(steps.values()) == {1}
    assert begun == steps.keys() | ledger.groups.keys()
    assert steps.keys() & ledger.groups.keys() <= {
        name for name, group in ledger.groups.items() if group.trained_version is not None
    }
    if longest_s > 30:
        assert (len(steps), len(ledger.groups)) == (STEPS * B, 0), "none begins for no step"


def test_what_was_sampled_before_an_update_is_trained_behind_it() -> None:
    sampled = sum(run(1.0).ages.values())

    assert sampled == pytest.approx(sum(run(0).ages.values()), rel=0.001), "the same sessions"
