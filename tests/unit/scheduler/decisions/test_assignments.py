"""Assignments and starts of steps, decided over lists of events."""

from seamlessflow.scheduler.decisions.decide import View, decide
from seamlessflow.scheduler.decisions.snapshot import FIRST_RETRY_MS
from seamlessflow.scheduler.settings import RunSection, SchedulerSection, SchedulerSettings
from seamlessflow.scheduler.state.fleet import Fleet
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from tests.builders.records import control
from tests.builders.records.fleet import heartbeat
from tests.builders.scheduler.inputs import (
    fleet_of,
    fold,
    holds,
    joined_both,
    rules_for,
    scheduler_settings,
)

MEASURED = [control.completed(0, at_ms=1_000)]
ROLLER = control.joined("a", tags=("rollout",))
"""Worker a only rolls out; b and c can do both."""


def decided(
    *records: Record, now_ms: int = 0, settings: SchedulerSettings | None = None
) -> list[Record]:
    """Return the decisions about workers and steps after these records."""
    settings = settings or scheduler_settings(scheduler=SchedulerSection(min_dwell_s=0))
    state = fold(control.claimed(), control.published(0), *records)
    fleet = fleet_of(
        *(
            heartbeat(worker, process, tuple(process_state.tags), process_state.incarnation)
            for worker, worker_state in state.workers.items()
            for process, process_state in worker_state.processes.items()
        )
    )
    written = decide(View(state, fleet), rules_for(settings), now_ms)
    kinds = (r.RoleAssigned, r.StepStarted, r.AssignmentTimedOut, r.WorkerLost, r.PlanWarning)
    return [record for _, record in written if isinstance(record, kinds)]


def roles(*records: Record, now_ms: int = 0, gang_size: int | None = None) -> dict[str, str]:
    section = SchedulerSection(min_dwell_s=0, gang_size=gang_size)
    decisions = decided(*records, now_ms=now_ms, settings=scheduler_settings(scheduler=section))
    return {
        assignment.worker: assignment.role
        for assignment in decisions
        if isinstance(assignment, r.RoleAssigned)
    }


def test_a_worker_that_joined_rolls_out_in_the_lowest_free_slot() -> None:
    decisions = decided(ROLLER, *holds("a", number=0), control.joined("b"), control.joined("c"))

    slots = {
        assignment.worker: assignment.slot
        for assignment in decisions
        if isinstance(assignment, r.RoleAssigned)
    }
    assert slots == {"b": 1, "c": 2}


def test_the_log_of_an_assignment_shows_its_figures_as_plain_values() -> None:
    decisions = decided(*joined_both("b"), control.joined("c", tags=("rollout",)))
    assert decisions and "mappingproxy" not in repr(decisions)


def test_a_slot_is_given_again_only_after_its_reader_released_it() -> None:
    moving = [
        *joined_both("b"),
        *holds("b", number=0),
        control.assigned("b", "train", 1, gang_epoch=1),
        *joined_both("c"),
    ]
    (assignment,) = [record for record in decided(*moving) if isinstance(record, r.RoleAssigned)]
    assert (assignment.worker, assignment.slot) == ("c", 1)

    freed = control.released("b", "rollout", 1)
    (assignment,) = [
        record for record in decided(*moving, freed) if isinstance(record, r.RoleAssigned)
    ]
    assert (assignment.worker, assignment.slot) == ("c", 0)


def test_assignments_are_numbered_on() -> None:
    decisions = decided(
        ROLLER, control.assigned("a", assignment=7), control.joined("b"), control.joined("c")
    )

    assert [
        assignment.assignment for assignment in decisions if isinstance(assignment, r.RoleAssigned)
    ] == [8, 9]


def test_no_worker_rolls_out_before_there_are_weights() -> None:
    view = View(fold(control.claimed(), ROLLER), fleet_of(heartbeat("a", tags=("rollout",))))

    assert not decide(view, rules_for(), 0)


def test_every_assignment_is_kept_on_fleet() -> None:
    view = View(
        fold(control.claimed(), control.published(0), ROLLER),
        fleet_of(heartbeat("a", tags=("rollout",))),
    )

    (topic, assigned), (compacted, kept) = decide(view, rules_for(), 0)
    assert (topic, compacted) == ("control", "fleet")
    assert isinstance(assigned, r.RoleAssigned) and isinstance(kept, r.WorkerAssignment)
    assert (kept.worker, kept.assignment) == (assigned.worker, assigned.assignment)


def test_nothing_is_decided_twice() -> None:
    rolling = [ROLLER, *holds("a", number=0)]

    assert not decided(*rolling)
    assert not decided(ROLLER, control.assigned("a", assignment=0, slot=0))


def test_a_ready_batch_gets_its_gang_at_once_under_one_gang_epoch() -> None:
    workers = [*joined_both("b"), *holds("b", number=0), *joined_both("c")]
    decisions = decided(*workers, *holds("c", number=1), control.batch_ready())

    gang = [assignment for assignment in decisions if isinstance(assignment, r.RoleAssigned)]
    assert {assignment.worker for assignment in gang} == {"b", "c"}
    assert {(assignment.role, assignment.gang_epoch, assignment.slot) for assignment in gang} == {
        ("train", 1, None)
    }


def test_a_step_starts_when_all_of_the_gang_have_acquired_their_role() -> None:
    before = [
        *joined_both("b"),
        *joined_both("c"),
        control.batch_ready(),
        *holds("b", "train", 0, gang_epoch=1),
        control.assigned("c", "train", 1, gang_epoch=1),
    ]

    assert not decided(*before)
    (step,) = decided(*before, control.acquired("c", "train", 1))
    assert isinstance(step, r.StepStarted)
    assert (step.step, step.gang_epoch, step.workers) == (0, 1, ("b", "c"))


def test_a_started_step_is_not_started_again() -> None:
    assert not decided(
        *joined_both("b"),
        control.batch_ready(),
        *holds("b", "train", 0, gang_epoch=1),
        control.started(["b"]),
    )


def test_a_batch_announced_again_by_a_resumed_trainer_is_started_again() -> None:
    (step,) = decided(
        *joined_both("b"),
        control.batch_ready(3),
        *holds("b", "train", 0, gang_epoch=1),
        control.started(["b"], 3),
        control.batch_ready(1),
    )

    assert isinstance(step, r.StepStarted) and step.step == 1


def test_the_next_batch_starts_with_the_gang_that_is_there() -> None:
    (step,) = decided(
        *joined_both("b"),
        control.batch_ready(0),
        *holds("b", "train", 0, gang_epoch=1),
        control.started(["b"], 0),
        control.batch_ready(1),
        control.completed(0),
    )

    assert isinstance(step, r.StepStarted) and (step.step, step.gang_epoch) == (1, 1)


def test_losing_a_rank_restarts_the_gang() -> None:
    training = [
        *joined_both("b"),
        *joined_both("c"),
        control.batch_ready(),
        *holds("b", "train", 0, gang_epoch=1),
        *holds("c", "train", 1, gang_epoch=1),
        control.started(["b", "c"]),
    ]
    decisions = decided(*training, control.lost("c", "train"), control.joined("c", "train"))

    gang = [assignment for assignment in decisions if isinstance(assignment, r.RoleAssigned)]
    assert {(assignment.worker, assignment.gang_epoch) for assignment in gang} == {
        ("b", 2),
        ("c", 2),
    }


def test_one_of_a_gang_that_comes_too_late_releases_all() -> None:
    waiting = [
        *joined_both("b"),
        *joined_both("c"),
        control.batch_ready(),
        *holds("b", "train", 0, gang_epoch=1),
        control.assigned("c", "train", 1, gang_epoch=1, deadline_ms=1_000),
    ]

    (late,) = decided(*waiting, now_ms=1_000)
    assert isinstance(late, r.AssignmentTimedOut) and late.worker == "c"
    assert roles(*waiting, late, now_ms=1_001, gang_size=2) == {"b": "rollout"}
    freed = control.released("c", "train", 1, at_ms=1_001)
    assert roles(*waiting, late, freed, now_ms=1_001, gang_size=2) == {
        "b": "rollout",
        "c": "rollout",
    }


def test_a_worker_whose_process_may_still_take_the_device_gets_no_other_role() -> None:
    late = [
        *joined_both("b"),
        control.assigned("b", "rollout", 0, slot=0),
        control.timed_out("b", "rollout", 0, at_ms=0),
        control.batch_ready(),
    ]

    assert roles(*late, now_ms=0) == {}
    assert roles(*late, control.acquired("b", assignment=0), now_ms=0) == {"b": "train"}
    assert roles(*late, control.lost("b"), now_ms=0) == {"b": "train"}


def test_a_worker_that_came_too_late_is_asked_again_after_a_while() -> None:
    late = [
        *joined_both("b"),
        control.batch_ready(),
        control.assigned("b", "train", 0, gang_epoch=1),
        control.timed_out("b", "train", 0, at_ms=0),
        control.released("b", "train", 0),
        *holds("b", "rollout", 1),
    ]

    assert roles(*late, now_ms=FIRST_RETRY_MS - 1) == {}
    assert roles(*late, now_ms=FIRST_RETRY_MS) == {"b": "train"}


def test_a_gang_waits_for_a_member_that_is_just_taking_the_other_role() -> None:
    on_its_way = [
        *joined_both("b"),
        *holds("b", number=0),
        *joined_both("c"),
        control.assigned("c", assignment=1, slot=1),
        control.batch_ready(),
    ]

    assert roles(*on_its_way) == {}
    assert roles(*on_its_way, control.acquired("c", assignment=1)) == {"b": "train", "c": "train"}


def test_a_worker_that_is_just_taking_training_is_not_called_back() -> None:
    broken = [
        *joined_both("b"),
        *joined_both("c"),
        control.assigned("b", "train", 0, gang_epoch=1),
        control.assigned("c", "train", 1, gang_epoch=1),
        control.batch_ready(),
        control.lost("c", "train"),
    ]

    assert roles(*broken, gang_size=2) == {"c": "rollout"}
    assert roles(*broken, control.acquired("b", "train", 0), gang_size=2)["b"] == "rollout"


def test_after_a_step_the_worker_rolls_out_again() -> None:
    over = [
        ROLLER,
        *holds("a", number=0),
        *joined_both("b"),
        control.batch_ready(),
        *holds("b", "train", 1, gang_epoch=1),
        control.started(["b"]),
        control.admitted("run-0"),
        *MEASURED,
    ]

    assert roles(*over, now_ms=1_000) == {"b": "rollout"}


def test_behind_the_last_step_the_only_worker_rolls_out_for_the_evaluation() -> None:
    """It stayed in training, so that all sessions of the evaluation ran out of time."""
    over = [
        *joined_both("b"),
        control.batch_ready(),
        *holds("b", "train", 1, gang_epoch=1),
        control.started(["b"]),
        control.published(1, step=1),
        *MEASURED,
    ]
    one_step = scheduler_settings(RunSection(steps=1), SchedulerSection(min_dwell_s=0))

    assert decided(*over, now_ms=1_000, settings=one_step) == []
    begun = control.admitted("run-eval1-0", version=1, purpose="eval")
    (assignment,) = decided(*over, begun, now_ms=1_000, settings=one_step)
    assert isinstance(assignment, r.RoleAssigned) and assignment.role == "rollout"


def test_a_worker_beyond_the_last_slot_is_warned_of() -> None:
    workers = [control.joined(f"w{number:02}", tags=("rollout",)) for number in range(65)]
    decisions = decided(*workers)

    assert (
        len([assignment for assignment in decisions if isinstance(assignment, r.RoleAssigned)])
        == 64
    )
    assert [w.code for w in decisions if isinstance(w, r.PlanWarning)] == ["no_slot"]


def test_after_the_run_nothing_is_decided() -> None:
    state = fold(control.claimed(), control.finished(), control.joined("b"))
    one_step = scheduler_settings(RunSection(steps=1))

    assert not decide(View(state, Fleet()), rules_for(one_step), 0)
