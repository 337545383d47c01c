"""From wanted roles to records: decisions over lists of events."""

from scheduler.decisions.decide import View, decide
from scheduler.decisions.snapshot import FIRST_RETRY_MS
from scheduler.settings import RunSection, SchedulerSection, SchedulerSettings
from scheduler.state.fleet import Fleet
from schemas import records as r
from schemas.records import Record
from tests.builders.scheduler import events as e

MEASURED = [e.completed(0, at_ms=1_000)]
ROLLER = e.joined("a", tags=("rollout",))
"""Worker a only rolls out; b and c can do both."""


def decided(
    *records: Record, now_ms: int = 0, settings: SchedulerSettings | None = None
) -> list[Record]:
    """What is decided about workers and steps after these records."""
    settings = settings or e.settings(scheduler=SchedulerSection(min_dwell_s=0))
    known = e.fold(e.claimed(), e.published(0), *records)
    fleet = e.fleet_of(
        *(
            e.heartbeat(worker, process, tuple(of.tags), of.incarnation)
            for worker, found in known.workers.items()
            for process, of in found.processes.items()
        )
    )
    written = decide(View(known, fleet), e.rules(settings), now_ms)
    kinds = (r.RoleAssigned, r.StepStarted, r.AssignmentTimedOut, r.WorkerLost, r.PlanWarning)
    return [record for _, record in written if isinstance(record, kinds)]


def roles(*records: Record, now_ms: int = 0, gang_size: int | None = None) -> dict[str, str]:
    section = SchedulerSection(min_dwell_s=0, gang_size=gang_size)
    found = decided(*records, now_ms=now_ms, settings=e.settings(scheduler=section))
    return {given.worker: given.role for given in found if isinstance(given, r.RoleAssigned)}


def test_a_worker_that_joined_rolls_out_in_the_lowest_free_slot() -> None:
    found = decided(ROLLER, *e.holds("a", number=0), e.joined("b"), e.joined("c"))

    slots = {given.worker: given.slot for given in found if isinstance(given, r.RoleAssigned)}
    assert slots == {"b": 1, "c": 2}


def test_assignments_are_numbered_on() -> None:
    found = decided(ROLLER, e.assigned("a", number=7), e.joined("b"), e.joined("c"))

    assert [given.assignment for given in found if isinstance(given, r.RoleAssigned)] == [8, 9]


def test_nobody_rolls_out_before_there_are_weights() -> None:
    view = View(e.fold(e.claimed(), ROLLER), e.fleet_of(e.heartbeat("a", tags=("rollout",))))

    assert not decide(view, e.rules(), 0)


def test_every_assignment_is_kept_on_fleet() -> None:
    view = View(
        e.fold(e.claimed(), e.published(0), ROLLER),
        e.fleet_of(e.heartbeat("a", tags=("rollout",))),
    )

    (control, assigned), (fleet, kept) = decide(view, e.rules(), 0)
    assert (control, fleet) == ("control", "fleet")
    assert isinstance(assigned, r.RoleAssigned) and isinstance(kept, r.WorkerAssignment)
    assert (kept.worker, kept.assignment) == (assigned.worker, assigned.assignment)


def test_nothing_is_decided_twice() -> None:
    rolling = [ROLLER, *e.holds("a", number=0)]

    assert not decided(*rolling)
    assert not decided(ROLLER, e.assigned("a", number=0, slot=0))


def test_a_ready_batch_gets_its_gang_at_once_under_one_gang_epoch() -> None:
    workers = [*e.joined_both("b"), *e.holds("b", number=0), *e.joined_both("c")]
    found = decided(*workers, *e.holds("c", number=1), e.batch_ready())

    gang = [given for given in found if isinstance(given, r.RoleAssigned)]
    assert {given.worker for given in gang} == {"b", "c"}
    assert {(given.role, given.gang_epoch, given.slot) for given in gang} == {("train", 1, None)}


def test_a_step_starts_when_all_of_the_gang_have_acquired_their_role() -> None:
    before = [
        *e.joined_both("b"),
        *e.joined_both("c"),
        e.batch_ready(),
        *e.holds("b", "train", 0, gang_epoch=1),
        e.assigned("c", "train", 1, gang_epoch=1),
    ]

    assert not decided(*before)
    (step,) = decided(*before, e.acquired("c", "train", 1))
    assert isinstance(step, r.StepStarted)
    assert (step.step, step.gang_epoch, step.workers) == (0, 1, ("b", "c"))


def test_a_started_step_is_not_started_again() -> None:
    assert not decided(
        *e.joined_both("b"),
        e.batch_ready(),
        *e.holds("b", "train", 0, gang_epoch=1),
        e.started(["b"]),
    )


def test_a_batch_announced_again_by_a_resumed_trainer_is_started_again() -> None:
    (step,) = decided(
        *e.joined_both("b"),
        e.batch_ready(3),
        *e.holds("b", "train", 0, gang_epoch=1),
        e.started(["b"], 3),
        e.batch_ready(1),
    )

    assert isinstance(step, r.StepStarted) and step.step == 1


def test_the_next_batch_starts_with_the_gang_that_is_there() -> None:
    (step,) = decided(
        *e.joined_both("b"),
        e.batch_ready(0),
        *e.holds("b", "train", 0, gang_epoch=1),
        e.started(["b"], 0),
        e.batch_ready(1),
        e.completed(0),
    )

    assert isinstance(step, r.StepStarted) and (step.step, step.gang_epoch) == (1, 1)


def test_losing_a_rank_restarts_the_gang() -> None:
    training = [
        *e.joined_both("b"),
        *e.joined_both("c"),
        e.batch_ready(),
        *e.holds("b", "train", 0, gang_epoch=1),
        *e.holds("c", "train", 1, gang_epoch=1),
        e.started(["b", "c"]),
    ]
    found = decided(*training, e.lost("c", "train"), e.joined("c", "train"))

    gang = [given for given in found if isinstance(given, r.RoleAssigned)]
    assert {(given.worker, given.gang_epoch) for given in gang} == {("b", 2), ("c", 2)}


def test_one_of_a_gang_that_comes_too_late_releases_all() -> None:
    waiting = [
        *e.joined_both("b"),
        *e.joined_both("c"),
        e.batch_ready(),
        *e.holds("b", "train", 0, gang_epoch=1),
        e.assigned("c", "train", 1, gang_epoch=1, deadline_ms=1_000),
    ]

    (late,) = decided(*waiting, now_ms=1_000)
    assert isinstance(late, r.AssignmentTimedOut) and late.worker == "c"
    assert roles(*waiting, late, now_ms=1_001, gang_size=2) == {"b": "rollout", "c": "rollout"}


def test_a_worker_that_came_too_late_is_asked_again_after_a_while() -> None:
    late = [
        *e.joined_both("b"),
        e.batch_ready(),
        e.assigned("b", "train", 0, gang_epoch=1),
        e.timed_out("b", "train", 0, at_ms=0),
        *e.holds("b", "rollout", 1),
    ]

    assert roles(*late, now_ms=FIRST_RETRY_MS - 1) == {}
    assert roles(*late, now_ms=FIRST_RETRY_MS) == {"b": "train"}


def test_a_gang_waits_for_a_member_that_is_just_taking_the_other_role() -> None:
    on_its_way = [
        *e.joined_both("b"),
        *e.holds("b", number=0),
        *e.joined_both("c"),
        e.assigned("c", number=1, slot=1),
        e.batch_ready(),
    ]

    assert roles(*on_its_way) == {}
    assert roles(*on_its_way, e.acquired("c", number=1)) == {"b": "train", "c": "train"}
    assert roles(*on_its_way, e.timed_out("c", "rollout", 1)) == {"b": "train", "c": "train"}


def test_a_worker_that_is_just_taking_training_is_not_called_back() -> None:
    broken = [
        *e.joined_both("b"),
        *e.joined_both("c"),
        e.assigned("b", "train", 0, gang_epoch=1),
        e.assigned("c", "train", 1, gang_epoch=1),
        e.batch_ready(),
        e.lost("c", "train"),
    ]

    assert roles(*broken, gang_size=2) == {"c": "rollout"}
    assert roles(*broken, e.acquired("b", "train", 0), gang_size=2)["b"] == "rollout"


def test_after_a_step_the_worker_rolls_out_again() -> None:
    over = [
        ROLLER,
        *e.holds("a", number=0),
        *e.joined_both("b"),
        e.batch_ready(),
        *e.holds("b", "train", 1, gang_epoch=1),
        e.started(["b"]),
        e.admitted("run-0"),
        *MEASURED,
    ]

    assert roles(*over, now_ms=1_000) == {"b": "rollout"}


def test_a_worker_beyond_the_last_slot_is_warned_of() -> None:
    workers = [e.joined(f"w{number:02}", tags=("rollout",)) for number in range(65)]
    found = decided(*workers)

    assert len([given for given in found if isinstance(given, r.RoleAssigned)]) == 64
    assert [w.code for w in found if isinstance(w, r.PlanWarning)] == ["no_slot"]


def test_after_the_run_nothing_is_decided() -> None:
    state = e.fold(e.claimed(), r.RunFinished(at_ms=0, steps=1, reason=""), e.joined("b"))
    one_step = e.settings(RunSection(steps=1))

    assert not decide(View(state, Fleet()), e.rules(one_step), 0)
