"""Gateways and readers that are waited for: each is reported with its place, begin and deadline.

Holds invariant I8.
"""

from pathlib import Path

from seamlessflow.scheduler.decisions.membership import Contact
from seamlessflow.scheduler.decisions.stalls import absent
from seamlessflow.scheduler.settings import PacingSection, SchedulerSection
from seamlessflow.scheduler.state import unread
from seamlessflow.scheduler.state.fleet import Fleet
from seamlessflow.scheduler.state.fleet import apply as fleet_apply
from seamlessflow.scheduler.state.unread import GroupLook, UnreadTopics
from seamlessflow.schemas.records import ProgressStalled, Record
from tests.builders.records import control, fleet
from tests.builders.scheduler.inputs import fold, holds, joined_both, scheduler_settings

SETTINGS = scheduler_settings(
    scheduler=SchedulerSection(unread_s=10, heartbeat_timeout_s=5),
    pacing=PacingSection(tasks=Path("tasks.jsonl"), task_timeout_s=100, task_grace_s=20),
)
BEGUN = [control.claimed(), *joined_both("w"), *holds("w")]


def reports(
    now_ms: int,
    *records: Record,
    heard: Fleet | None = None,
    waiting: UnreadTopics | None = None,
    contact: Contact | None = None,
) -> list[ProgressStalled]:
    """Return the reports at a time until which Kafka answered, unless a contact is given."""
    contact = contact or Contact(0, now_ms)
    state = fold(*(records or BEGUN))
    return absent(state, heard or Fleet(), waiting or {}, contact, SETTINGS, now_ms)


def looks(*taken: tuple[int, GroupLook]) -> UnreadTopics:
    """Return the fold of looks, each with its time."""
    topics: UnreadTopics = {}
    for at_ms, look in taken:
        topics = unread.apply(topics, look, at_ms)
    return topics


def look(topic: str = "requests", members: int = 0, **behind: tuple[int, int]) -> GroupLook:
    """Return a look; `behind` is offset and lag by `p` and the number of the partition."""
    numbered = {int(name[1:]): place for name, place in behind.items()}
    return GroupLook(topic=topic, group="g", members=members, behind=numbered)


def test_a_gateway_without_heartbeats_is_reported_until_it_gives_one() -> None:
    heard = fleet_apply(Fleet(), fleet.gateway("g", at_ms=1_000), 1_000)

    assert not reports(6_000, heard=heard)
    (report,) = reports(6_001, heard=heard)
    assert (report.process, report.since_ms, report.deadline_ms) == ("gateway g", 1_000, 5_000)
    assert not reports(6_001, heard=fleet_apply(heard, fleet.gateway("g", at_ms=6_000), 6_000))


def test_a_gateway_that_ended_in_order_is_not_waited_for() -> None:
    heard = fleet_apply(Fleet(), fleet.gateway("g", at_ms=1_000, ending=True), 1_000)

    assert not reports(60_000, heard=heard)


def test_a_gateway_that_was_gone_before_the_scheduler_began_is_not_waited_for() -> None:
    heard = fleet_apply(Fleet(), fleet.gateway("g", at_ms=1_000), 1_000)

    assert not reports(60_000, control.claimed(at_ms=50_000), heard=heard)


def test_time_without_contact_to_kafka_does_not_count() -> None:
    heard = fleet_apply(Fleet(), fleet.gateway("g", at_ms=1_000), 1_000)

    assert not reports(60_000, heard=heard, contact=Contact(58_000, 60_000))


def test_commands_that_no_manager_reads_are_reported_with_their_place() -> None:
    waiting = looks((1_000, look(p3=(7, 2))), (6_000, look(p3=(7, 5), p4=(0, 1))))

    assert not reports(11_000, waiting=waiting)
    (report,) = reports(11_001, waiting=waiting)
    assert (report.what, report.process, report.topic) == ("requests unread", "manager", "requests")
    assert (report.partition, report.offset, report.since_ms) == (3, 7, 1_000)
    assert report.detail == (
        "6 records in 2 partitions wait for the Kafka consumer group g, which has no member"
    )


def test_a_manager_that_reads_on_is_not_reported_however_far_it_is_behind() -> None:
    taken = [(second * 1_000, look(p3=(second, 9_000), members=1)) for second in range(60)]

    assert not reports(60_000, waiting=looks(*taken))


def test_a_manager_that_is_there_and_reads_nothing_is_reported() -> None:
    (report,) = reports(11_001, waiting=looks((1_000, look(p3=(7, 2), members=1))))

    assert report.detail.endswith("which has 1 members")


def test_records_that_were_read_in_the_end_are_not_reported() -> None:
    waiting = looks((1_000, look(p3=(7, 2))), (20_000, look(p3=(9, 0))))

    assert not reports(60_000, waiting=waiting)


def test_tasks_without_a_runner_are_reported() -> None:
    (report,) = reports(11_001, waiting=looks((1_000, look("tasks", p0=(0, 4)))))

    assert (report.process, report.topic) == ("agents", "tasks")


def test_tasks_wait_for_a_runner_that_is_busy_as_long_as_an_attempt_takes() -> None:
    waiting = looks((1_000, look("tasks", members=1, p0=(0, 4))))

    assert not reports(131_000, waiting=waiting)
    assert [report.topic for report in reports(131_001, waiting=waiting)] == ["tasks"]


def test_trajectories_without_a_trainer_are_reported() -> None:
    lost = control.lost("w", process="train", at_ms=3_000)
    heard = fleet_apply(Fleet(), fleet.heartbeat("w", "train", at_ms=2_000), 2_000)
    records = [*BEGUN, control.admitted("run-0"), lost]

    assert not reports(12_000, *records, heard=heard)
    (report,) = reports(12_001, *records, heard=heard)
    assert (report.process, report.topic, report.since_ms) == ("train", "trajectories", 2_000)


def test_prompts_without_a_rollout_process_are_reported() -> None:
    records = [*BEGUN, control.admitted("run-0"), control.lost("w", process="rollout")]

    assert [report.topic for report in reports(10_001, *records)] == ["prompts"]


def test_a_scheduler_of_an_evaluation_waits_for_no_trainer() -> None:
    records = [*BEGUN, control.admitted("run-0"), control.lost("w", process="train")]
    evaluation = scheduler_settings(pacing=PacingSection())

    assert not absent(fold(*records), Fleet(), {}, Contact(0, 60_000), evaluation, 60_000)


def test_a_fleet_that_has_nothing_to_do_lacks_no_worker() -> None:
    records = [*BEGUN, control.lost("w", process="rollout"), control.lost("w", process="train")]

    assert not reports(60_000, *records)
