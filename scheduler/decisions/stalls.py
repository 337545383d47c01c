"""Reports of stalls: in the run's work, in a gateway, in a topic's reader. Pure.

Each report names process, topic, offset, when the stall began, and the limit. No decision follows
from it here: the launcher, or another supervisor, starts gateways and readers. The loss of a
rollout process or a trainer is `WorkerLost` (`membership.py`).

The stall `refill` is reported at once: no credit is left to replace dropped groups. Then only the
trainer can go on: it trains with the ready groups or skips the step. Called by
`scheduler/decisions/decide.py`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from seamlessflow.scheduler.decisions import group_credits
from seamlessflow.scheduler.decisions.membership import Contact
from seamlessflow.scheduler.settings import SchedulerSettings, milliseconds
from seamlessflow.scheduler.state.fleet import Fleet
from seamlessflow.scheduler.state.policy_state import PolicyState
from seamlessflow.scheduler.state.state import State
from seamlessflow.scheduler.state.unread import UnreadTopic, UnreadTopics
from seamlessflow.schemas.records import ProgressStalled
from seamlessflow.schemas.tokens import step_name
from seamlessflow.schemas.topics import PROMPTS, REQUESTS, TASKS, TRAJECTORIES

REFILL = "refill"
_WAITED_FOR = {"step": "train", "gang": "train", "rollout": "rollout", REFILL: "train"}
"""Kind of process that each stall waits for."""
_READERS = {REQUESTS.name: "manager", TASKS.name: "agents"}


def of_all(state: State, settings: SchedulerSettings, now_ms: int) -> list[ProgressStalled]:
    """Return all policies' current stalls; a further policy's stall names that policy."""
    (_, leading), *others = group_credits.unfinished(state, settings).items()
    stalls = stalled(state, leading, settings, now_ms)
    for name, other in others:
        stalls += [
            replace(stall, what=f"{stall.what} {name}")
            for stall in stalled(state, other, settings, now_ms)
            # All policies have the same running groups.
            if stall.what != "rollout"
        ]
    return stalls


def stalled(
    state: State, policy: PolicyState, settings: SchedulerSettings, now_ms: int
) -> list[ProgressStalled]:
    """Return a policy's current stalls, including ones reported before."""
    stalls = [
        *_training(state, policy, settings, now_ms),
        *_rollout(state, policy, settings, now_ms),
    ]
    deadline_ms = milliseconds(settings.scheduler.stall_s)
    return [
        ProgressStalled(
            at_ms=now_ms,
            what=what,
            detail=detail,
            since_ms=since_ms,
            process=_WAITED_FOR[what],
            deadline_ms=0 if what == REFILL else deadline_ms,
        )
        for what, detail, since_ms in stalls
    ]


def absent(
    state: State,
    fleet: Fleet,
    unread: UnreadTopics,
    contact: Contact,
    settings: SchedulerSettings,
    now_ms: int,
) -> list[ProgressStalled]:
    """Return a stall for each wait past its deadline, including ones reported before.

    Time without contact to Kafka does not count.
    """
    stalls = [
        *_gateways(state, fleet, settings, now_ms),
        *_unread_topics(unread, settings, now_ms),
        *_topics_of_workers(state, fleet, settings, now_ms),
    ]
    return [stall for stall in stalls if contact.waited_ms(stall.since_ms) > stall.deadline_ms]


def unreported(state: State, stalls: Iterable[ProgressStalled]) -> list[ProgressStalled]:
    """Return the stalls not reported yet; a stall is reported once for each time it begins."""
    return [stall for stall in stalls if state.stalled.get(stall.what) != stall.since_ms]


def _training(
    state: State, policy: PolicyState, settings: SchedulerSettings, now_ms: int
) -> list[tuple[str, str, int]]:
    waiting = policy.steps.waiting
    if waiting is None:
        return []
    step, batch = waiting
    # A stall from before this scheduler began may have had no process: the run was ended.
    since_ms = max(batch.started_ms or batch.ready_ms, state.claimed_ms)
    if now_ms - since_ms < milliseconds(settings.scheduler.stall_s):
        return []
    if policy.steps.under_way:
        return [("step", f"{step_name(step)} was started and does not end", since_ms)]
    return [("gang", f"{step_name(step)} has its batch and no gang", since_ms)]


def _rollout(
    state: State, policy: PolicyState, settings: SchedulerSettings, now_ms: int
) -> list[tuple[str, str, int]]:
    ledger = policy.ledger
    # While a batch waits or trains, rollout may rest because no credit is free.
    if policy.steps.waiting is not None or not policy.rollouts_began or not ledger.moved_ms:
        return []
    since_ms = max(ledger.moved_ms, state.claimed_ms)
    quiet = now_ms - since_ms >= milliseconds(settings.scheduler.stall_s)
    running = ledger.running + ledger.exploring
    if running and quiet:
        detail = f"{running} groups are running, {ledger.ready} ready"
        return [("rollout", detail, since_ms)]
    spent = group_credits.withheld(state, policy, settings, now_ms) > 0
    if spent and not running and not group_credits.free_credits(state, settings, now_ms):
        detail = f"{ledger.dropped_in_step} groups dropped, {ledger.ready} ready, none running"
        return [(REFILL, detail, ledger.moved_ms)]
    return []


def _gateways(
    state: State, fleet: Fleet, settings: SchedulerSettings, now_ms: int
) -> Iterator[ProgressStalled]:
    limit_ms = milliseconds(settings.scheduler.heartbeat_timeout_s)
    for name, seen_ms in fleet.gateways.items():
        # A gateway that was gone before this scheduler began is not waited for.
        if seen_ms >= state.claimed_ms - limit_ms:
            yield ProgressStalled(
                at_ms=now_ms,
                what=f"gateway {name}",
                detail="no heartbeat: its calls are not answered until it goes on or starts again",
                since_ms=seen_ms,
                process=f"gateway {name}",
                deadline_ms=limit_ms,
            )


def _unread_topics(
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
    limits = settings.scheduler
    pacing = settings.pacing
    # Agents commit when an episode ends; a task may also wait until an agent is free.
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


def _topics_of_workers(
    state: State, fleet: Fleet, settings: SchedulerSettings, now_ms: int
) -> Iterator[ProgressStalled]:
    """Yield a stall for each worker topic that no worker is left to read."""
    policy = group_credits.leading(state, settings)
    ledger = policy.ledger
    # Without tasks this scheduler only serves an evaluation: the run's trainers may be gone.
    trains = settings.pacing.issues and policy.rollouts_began
    if not trains or not (ledger.training or ledger.explorations):
        return
    running = ledger.running + ledger.exploring
    present = {process for worker in state.workers.values() for process in worker.processes}
    waits = (
        ("train", TRAJECTORIES.name, f"{running} groups run and no trainer is there"),
        ("rollout", PROMPTS.name, f"{running} groups run and no rollout process is there"),
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
