"""Reports of what is waited for and does not come: a gateway, or the reader of a topic. Pure.

Each report names process, topic and offset, since when, and the time that was given. Nothing of it
needs a decision here: gateways and readers are started by the launcher or by whatever runs them. A
rollout process or trainer that is lost is `WorkerLost` (`membership.py`). Called by `decide.py`.
"""

from collections.abc import Iterator, Sequence

from seamlessflow.scheduler.decisions.contact import Contact
from seamlessflow.scheduler.settings import SchedulerSettings, milliseconds
from seamlessflow.scheduler.state.fleet import Fleet
from seamlessflow.scheduler.state.state import State
from seamlessflow.scheduler.state.unread import UnreadTopic, UnreadTopics
from seamlessflow.schemas.records import ProgressStalled
from seamlessflow.schemas.topics import PROMPTS, REQUESTS, TASKS, TRAJECTORIES

_READERS = {REQUESTS.name: "manager", TASKS.name: "agents"}


def absent(
    state: State,
    fleet: Fleet,
    unread: UnreadTopics,
    contact: Contact,
    settings: SchedulerSettings,
    now_ms: int,
) -> list[ProgressStalled]:
    """Return all that is waited for longer than its deadline, also if it was reported before.

    Time without contact to Kafka does not count.
    """
    stalls = [
        *_gateways(state, fleet, settings, now_ms),
        *_groups(unread, settings, now_ms),
        *_workers(state, fleet, settings, now_ms),
    ]
    return [stall for stall in stalls if contact.waited_ms(stall.since_ms) > stall.deadline_ms]


def _gateways(
    state: State, fleet: Fleet, settings: SchedulerSettings, now_ms: int
) -> Iterator[ProgressStalled]:
    limit_ms = milliseconds(settings.scheduler.heartbeat_timeout_s)
    for name, seen_ms in fleet.gateways.items():
        # One that was gone before this scheduler began is nothing that it waits for.
        if seen_ms >= state.claimed_ms - limit_ms:
            yield ProgressStalled(
                at_ms=now_ms,
                what=f"gateway {name}",
                detail="no heartbeat: its calls are not answered until it goes on or starts again",
                since_ms=seen_ms,
                process=f"gateway {name}",
                deadline_ms=limit_ms,
            )


def _groups(
    unread: UnreadTopics, settings: SchedulerSettings, now_ms: int
) -> Iterator[ProgressStalled]:
    for topic, seen in unread.items():
        if seen.partitions:
            number, oldest = min(seen.partitions.items(), key=lambda item: item[1].since_ms)
            yield ProgressStalled(
                at_ms=now_ms,
                what=f"{topic} unread",
                detail=_unread_detail(seen),
                since_ms=oldest.since_ms,
                process=_READERS[topic],
                topic=topic,
                partition=number,
                offset=oldest.offset,
                deadline_ms=_deadline_ms(topic, seen, settings),
            )


def _deadline_ms(topic: str, seen: UnreadTopic, settings: SchedulerSettings) -> int:
    limits, pacing = settings.scheduler, settings.pacing
    # Agents commit the end of an episode; a task may also wait until one of them is free.
    episode_s = pacing.task_timeout_s + pacing.task_grace_s
    plays = topic == TASKS.name and seen.members
    return milliseconds(limits.unread_s + (episode_s if plays else 0))


def _unread_detail(seen: UnreadTopic) -> str:
    lag = sum(place.lag for place in seen.partitions.values())
    readers = f"{seen.members} members" if seen.members else "no member"
    return (
        f"{lag} records in {len(seen.partitions)} partitions wait for the Kafka consumer group "
        f"{seen.group}, which has {readers}"
    )


def _workers(
    state: State, fleet: Fleet, settings: SchedulerSettings, now_ms: int
) -> Iterator[ProgressStalled]:
    """Yield the topics that workers read, if no worker is left for one."""
    ledger = state.ledger
    # Without tasks this scheduler serves an evaluation only: the trainers of the run may be gone.
    trains = settings.pacing.issues and state.rollouts_began
    if not trains or not ledger.training:
        return
    present = {process for worker in state.workers.values() for process in worker.processes}
    waits = (
        ("train", TRAJECTORIES.name, f"{ledger.running} groups run and no trainer is there"),
        ("rollout", PROMPTS.name, f"{ledger.running} groups run and no rollout process is there"),
    )
    for process, topic, detail in waits:
        if process not in present:
            yield ProgressStalled(
                at_ms=now_ms,
                what=f"{topic} unread",
                detail=detail,
                since_ms=max(state.claimed_ms, _last_seen_ms(fleet, process)),
                process=process,
                topic=topic,
                deadline_ms=milliseconds(settings.scheduler.unread_s),
            )


def _last_seen_ms(fleet: Fleet, process: str) -> int:
    seen: Sequence[int] = [
        latest.seen_ms for (_, kind), latest in fleet.heartbeats.items() if kind == process
    ]
    return max(seen, default=0)
