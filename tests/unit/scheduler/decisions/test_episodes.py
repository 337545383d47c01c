"""Episodes of several roles: a group for each role, admitted together and played as one."""

from functools import reduce
from pathlib import Path

import pytest

from seamlessflow.scheduler.decisions import pacing
from seamlessflow.scheduler.decisions.decide import View
from seamlessflow.scheduler.decisions.episodes import all_groups
from seamlessflow.scheduler.decisions.group_credits import free_credits
from seamlessflow.scheduler.settings import PacingSection, RunSection, SchedulerSettings
from seamlessflow.scheduler.state import state
from seamlessflow.scheduler.state.arms import Arms
from seamlessflow.scheduler.state.ledger import task_arm
from seamlessflow.scheduler.state.state import State, from_json, to_json
from seamlessflow.scheduler.tasks.mixture import TaskSets
from seamlessflow.scheduler.tasks.source import TaskRow, listed
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from tests.builders.records import control
from tests.builders.scheduler.inputs import scheduler_settings, task_source

PACING = PacingSection(
    tasks=Path("tasks"), task_timeout_s=10, task_grace_s=1, group_timeout_s=100, max_attempts=3
)
SOURCE = task_source()
SETS = TaskSets(SOURCE)
TWO = RunSection(
    policy="a",
    policies=("a", "b"),
    roles={"hider": "b", "seeker": "a"},
    groups_per_step=2,
    group_size=2,
    lag=0,
)
SELF_PLAY = RunSection(
    policy="a", roles={"one": "a", "two": "a"}, groups_per_step=4, group_size=2, lag=0
)
RIVAL = RunSection(
    policy="a",
    policies=("a",),
    frozen={"rival": None},
    roles={"them": "rival", "we": "a"},
    groups_per_step=1,
    group_size=2,
    lag=0,
)


class Pacing:
    """Pacing of a run, with the state of its `control`."""

    def __init__(self, run: RunSection) -> None:
        self.settings: SchedulerSettings = scheduler_settings(run, pacing=PACING)
        several = run.policies or run.frozen
        self.state = State.of_run(run.all_policies, run.frozen) if several else State()
        self.arms = Arms()
        self.view = View()
        self.apply(control.claimed())
        for number, policy in enumerate(run.served_policies):
            worker = f"w{number}"
            self.apply(
                control.joined(worker),
                control.published(0, policy=policy),
                control.assigned(worker, "rollout", number, slot=number, policy=policy),
                control.acquired(worker, "rollout", number, slot=number, policy=policy),
            )

    def apply(self, *records: Record) -> None:
        for record in records:
            self.arms.apply(self.state, record)
            self.state = state.apply(self.state, record)

    def admissions(self, now_ms: int = 0) -> list[r.GroupAdmitted]:
        return pacing.admissions(self.state, self.settings, SOURCE, now_ms)

    def tasks(self, now_ms: int = 0) -> list[r.Task]:
        """Return the tasks that are due, each once."""
        ledger = all_groups(self.state, self.state.first.ledger, self.settings)
        due = pacing.tasks(ledger, self.view.issued, self.settings, SETS, now_ms)
        self.view = View(self.state, issued=self.view.issued).with_issued(due)
        return due


def begun(run: RunSection) -> Pacing:
    """Return a run whose first groups are admitted."""
    run_pacing = Pacing(run)
    run_pacing.apply(*run_pacing.admissions())
    return run_pacing


def attempts(tasks: list[r.Task]) -> list[tuple[str, int, int]]:
    return [(task.group_id, task.sample, task.attempt) for task in tasks]


def test_each_role_has_a_group_of_its_policy_with_the_same_task_and_size() -> None:
    groups = Pacing(TWO).admissions()
    assert [(group.group_id, group.role, group.policy) for group in groups] == [
        ("run-0-seeker", "seeker", "a"),
        ("run-0-hider", "hider", "b"),
        ("run-1-seeker", "seeker", "a"),
        ("run-1-hider", "hider", "b"),
    ]
    first, second, *_ = groups
    assert (first.task_id, first.group_size, first.deadline_ms) == (
        second.task_id,
        second.group_size,
        second.deadline_ms,
    )
    assert first.roles == second.roles


def test_a_run_without_roles_admits_groups_as_before() -> None:
    (group, *_) = Pacing(RunSection(policy="a", groups_per_step=2)).admissions()
    assert (group.group_id, group.role, group.roles) == ("run-0", "", ())


def test_each_policy_keeps_its_groups_and_a_task_is_drawn_once() -> None:
    run = begun(TWO)
    mine, theirs = (set(policy.ledger.groups) for policy in run.state.by_policy)
    assert (mine, theirs) == (
        {"run-0-seeker", "run-1-seeker"},
        {"run-0-hider", "run-1-hider"},
    )
    ledger = run.state.first.ledger
    assert (ledger.admitted, ledger.drawn) == (2, 2)
    assert run.admissions() == []


def test_the_first_roles_group_alone_counts_for_the_statistics_of_the_task() -> None:
    run = begun(SELF_PLAY)
    arm = task_arm("task-0")
    assert run.arms.arm(arm).draws == 1
    run.apply(
        *(
            control.ready(f"run-0-{role}", sessions=("s",), returns=(1.0,))
            for role in ("two", "one")
        )
    )
    assert run.arms.arm(arm).passed == 1


@pytest.mark.parametrize("run", [TWO, SELF_PLAY])
def test_a_scheduler_that_takes_over_between_two_roles_admits_the_other(run: RunSection) -> None:
    whole = Pacing(run).admissions()
    taking_over = Pacing(run)
    taking_over.apply(whole[0])
    assert taking_over.tasks() == []
    taking_over.state = from_json(to_json(taking_over.state)) or State()
    taking_over.apply(control.claimed(2))

    (other,) = taking_over.admissions(now_ms=50)
    assert (other.epoch, other.group_id, other.roles) == (2, whole[1].group_id, whole[1].roles)
    taking_over.apply(other)
    assert len(taking_over.tasks()) == run.group_size
    assert [group.group_id for group in taking_over.admissions()] == [
        group.group_id for group in whole[2:]
    ]


def test_a_sample_of_all_roles_is_one_task() -> None:
    run = begun(TWO)
    tasks = run.tasks()
    assert attempts(tasks) == [
        (f"run-{group}-seeker", sample, 0) for group in (0, 1) for sample in (0, 1)
    ]
    assert [(role.role, role.policy, role.group_id) for role in tasks[0].roles] == [
        ("seeker", "a", "run-0-seeker"),
        ("hider", "b", "run-0-hider"),
    ]
    assert run.tasks() == []


@pytest.mark.parametrize("role", ["seeker", "hider"])
def test_an_episode_that_failed_for_one_role_is_tried_again_once_for_all(role: str) -> None:
    run = begun(TWO)
    run.tasks()
    policies = {"seeker": "a", "hider": "b"}

    def fail(name: str) -> None:
        run.apply(control.sample_failed(f"run-0-{name}", 1, 0, policy=policies[name], at_ms=7))

    fail(role)
    assert attempts(run.tasks(now_ms=10)) == [("run-0-seeker", 1, 1)]
    (other,) = policies.keys() - {role}
    fail(other)
    assert run.tasks(now_ms=20) == []


def test_a_group_that_ended_does_not_keep_the_other_role_from_being_tried_again() -> None:
    run = begun(TWO)
    run.tasks()
    run.apply(
        control.dropped("run-0-seeker", "filtered", policy="a"),
        control.sample_failed("run-0-hider", 0, 0, policy="b"),
    )
    assert attempts(run.tasks()) == [("run-0-seeker", 0, 1)]
    run.apply(control.ready("run-0-hider", policy="b"))
    assert {task.group_id for task in run.tasks(now_ms=10**7)} == {"run-1-seeker"}


def test_a_policy_that_plays_two_roles_has_two_credits_in_each_episode() -> None:
    run = begun(SELF_PLAY)
    assert len(run.state.first.ledger.groups) == SELF_PLAY.groups_per_step
    run.apply(control.dropped("run-0-two", "filtered"))
    assert free_credits(run.state, run.settings, 0) == 1, "or a dropped group would end the run"


def test_each_policy_must_have_a_credit_for_its_role() -> None:
    run = begun(TWO)
    run.apply(control.dropped("run-0-hider", "filtered", policy="b"))
    assert free_credits(run.state, run.settings, 0) == 0
    run.apply(control.dropped("run-0-seeker", "filtered", policy="a"))
    assert free_credits(run.state, run.settings, 0) == 1


def test_a_frozen_policys_role_has_sessions_and_no_group() -> None:
    run = begun(RIVAL)
    assert set(run.state.first.ledger.groups) == {"run-0-we"}
    (task, _) = run.tasks()
    assert [(role.group_id, role.trained) for role in task.roles] == [
        ("run-0-we", True),
        ("run-0-them", False),
    ]


def test_an_expired_group_is_reported_to_the_policy_of_its_role() -> None:
    expired = pacing.expirations(begun(TWO).state, "a", 10**9)
    assert {record.group_id: record.policy for record in expired} == {
        "run-0-seeker": "a",
        "run-1-seeker": "a",
        "run-0-hider": "b",
        "run-1-hider": "b",
    }


def test_a_task_whose_episodes_all_failed_is_drawn_again_once() -> None:
    run = begun(SELF_PLAY)
    run.apply(*(control.dropped(f"run-0-{role}", "failed") for role in ("one", "two")))
    ledger = run.state.first.ledger
    assert (ledger.again, ledger.tries) == (("task-0",), {"task-0": 1})


def test_records_of_an_older_scheduler_change_nothing() -> None:
    run = begun(TWO)
    before = run.state = reduce(state.apply, [control.claimed(2)], run.state)
    run.apply(*Pacing(TWO).admissions())
    assert run.state is before


@pytest.mark.parametrize(
    ("named", "roles"),
    [
        (("hider",), ["hider"]),
        (("hider", "seeker"), ["seeker", "hider"]),
        (("stranger",), ["seeker", "hider"]),
    ],
)
def test_a_task_may_name_some_of_the_roles(named: tuple[str, ...], roles: list[str]) -> None:
    run = Pacing(TWO)
    source = listed([TaskRow("task-0", b"{}", {}, roles=named)])
    first = [
        group
        for group in pacing.admissions(run.state, run.settings, source, 0)
        if group.group_id.startswith("run-0-")
    ]
    assert [group.role for group in first] == roles
    run.apply(*first)
    assert run.state.first.ledger.drawn == 1


def test_an_opponent_alone_is_no_episode() -> None:
    run = Pacing(RIVAL)
    source = listed([TaskRow("task-0", b"{}", {}, roles=("them",))])
    (group,) = pacing.admissions(run.state, run.settings, source, 0)
    assert [role.role for role in group.roles] == ["we", "them"]
