"""The page Now: what each part of a run does at a moment, and what holds it up. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from seamlessflow.console.log.run_log import RunPicture
from seamlessflow.console.models.control import GroupUnderWay, StepState, WorkerState
from seamlessflow.console.models.fleet import LivingProcess
from seamlessflow.console.models.sessions import TurnUnderWay
from seamlessflow.console.models.surroundings import (
    NOTHING_KNOWN,
    AuditState,
    Surroundings,
)
from seamlessflow.console.models.warnings import RunWarning
from seamlessflow.console.views.waits import Wait, flow_of, is_silent, step_phase, waits_of
from seamlessflow.infra.kafka.topics.lag import GroupState
from seamlessflow.schemas import records as r
from seamlessflow.schemas.tokens import shown_step, step_name
from seamlessflow.trainer.metrics.phases import PHASES
from seamlessflow.trainer.metrics.symptoms import symptoms

MOST_LINES = 60
_SHOWN_WARNINGS = 12
_SLOW = 1 / 3
_SKEW_MS = 60_000
"""Largest assumed difference between two hosts' clocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLine:
    """A worker, with its queue."""

    worker: str
    role: str
    phase: str
    doing: str
    """Phase in words."""
    policy: str
    version: int | None
    since_ms: int
    reason: str
    devices: int
    processes: tuple[str, ...]
    usage: Mapping[str, float]
    slot: int | None
    running: int
    """Turns that its engine samples, from its last heartbeat."""
    waiting: int
    capacity: int
    turns: int
    """Turns that the log gave it and that have not ended."""
    oldest_ms: int | None
    """When the oldest such turn was dispatched."""
    tokens_per_s: float | None
    """Tokens per second while it decodes, over some ten reports."""
    slow: bool
    """True if that is below a third of the median over its policy's workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLine:
    """A policy's step under way, or its last one."""

    policy: str
    step: int
    """Counted from 1, as people see steps."""
    phase: str
    done: int
    finished: bool
    version: int | None
    groups: int
    tokens: int
    workers: tuple[str, ...]
    times: tuple[tuple[str, int], ...]
    """Phases that have begun, with their times."""
    last_seconds: Mapping[str, float]
    """Seconds that the last completed step spent in each phase."""
    rewards: tuple[tuple[int, float], ...]
    """Number and mean reward of each of the last steps."""
    staleness: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLine:
    """A group under way."""

    group_id: str
    task_id: str
    policy: str
    purpose: str
    state: str
    size: int
    open: int
    ended: int
    turns: int
    failed: int
    reward_mean: float | None
    admitted_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLine:
    """A partition of `sessions` with its owner."""

    partition: int
    manager: str
    epoch: int
    open: int
    turns: int
    without_worker: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLine:
    """A process, by its last heartbeat."""

    name: str
    kind: str
    state: str
    detail: str
    seen_ms: int
    silent: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NowPage:
    """A run's state at a moment."""

    at_ms: int
    finished: bool
    workers: tuple[WorkerLine, ...]
    waits: tuple[Wait, ...]
    steps: tuple[StepLine, ...]
    groups: tuple[GroupLine, ...]
    group_counts: Mapping[str, int]
    sessions_open: int
    sessions_total: int
    with_agents: int
    turns_sampled: int
    turns_waiting: int
    partitions: tuple[PartitionLine, ...]
    processes: tuple[ProcessLine, ...]
    warnings: tuple[RunWarning, ...]
    warning_count: int
    symptoms: tuple[str, ...]
    readings: Sequence[GroupState]
    """Kafka's consumer groups with their lag; empty for an earlier moment."""
    audit: AuditState | None


def now_page(picture: RunPicture, around: Surroundings = NOTHING_KNOWN) -> NowPage:
    """Return the page; `around`: facts that stand on no log."""
    control = picture.control
    flow = flow_of(picture)
    groups = sorted(control.groups.values(), key=lambda group: group.admitted_ms)
    policies = dict.fromkeys((*control.steps, *control.completed, *control.versions))
    return NowPage(
        at_ms=picture.at_ms,
        finished=control.ended,
        workers=tuple(_workers(picture)),
        waits=() if control.ended else waits_of(picture, flow),
        steps=tuple(_step(picture, policy) for policy in policies),
        groups=tuple(_groups(picture, groups[:MOST_LINES])),
        group_counts=dict(sorted(Counter(group.state for group in groups).items())),
        sessions_open=sum(len(fold.open) for fold in picture.sessions.values()),
        sessions_total=sum(fold.sessions for fold in picture.sessions.values()),
        with_agents=flow.with_agents,
        turns_sampled=flow.turns.total(),
        turns_waiting=flow.without_worker,
        partitions=tuple(_partitions(picture)),
        processes=tuple(_processes(picture)),
        warnings=control.warnings[-_SHOWN_WARNINGS:][::-1],
        warning_count=len(control.warnings),
        symptoms=tuple(_symptoms(picture)),
        readings=around.groups,
        audit=around.audit,
    )


def _workers(picture: RunPicture) -> Iterator[WorkerLine]:
    turns: dict[str, list[TurnUnderWay]] = {}
    for fold in picture.sessions.values():
        for turn in fold.turns.values():
            turns.setdefault(turn.worker, []).append(turn)
    present = [
        worker for _, worker in sorted(picture.control.workers.items()) if worker.phase != "lost"
    ]
    decoded = picture.control.decoded
    rates = {name: tokens.tokens_per_s for name, tokens in decoded.items()}
    medians = _medians(present, rates)
    for worker in present:
        rate = rates.get(worker.worker)
        slow = rate is not None and rate < _SLOW * medians[worker.policy]
        yield _worker(worker, picture, turns.get(worker.worker, []), rate, slow)


def _medians(
    workers: Sequence[WorkerState], rates: Mapping[str, float | None]
) -> Mapping[str, float]:
    """Return by policy the median over its workers' tokens per second."""
    by_policy: dict[str, list[float]] = {}
    for worker in workers:
        if (rate := rates.get(worker.worker)) is not None:
            by_policy.setdefault(worker.policy, []).append(rate)
    return {policy: median(values) for policy, values in by_policy.items()}


def _worker(
    worker: WorkerState,
    picture: RunPicture,
    turns: list[TurnUnderWay],
    rate: float | None,
    slow: bool,
) -> WorkerLine:
    beat = picture.fleet.worker(worker.worker, "rollout")
    return WorkerLine(
        worker=worker.worker,
        role="" if worker.phase == "released" else worker.role,
        phase=worker.phase,
        doing=_doing(worker),
        policy=worker.policy,
        version=worker.version,
        since_ms=worker.since_ms,
        reason=worker.reason,
        devices=worker.devices,
        processes=worker.processes,
        usage=dict(sorted(picture.control.usage.get(worker.worker, {}).items())),
        slot=None if beat is None else beat.slot,
        running=0 if beat is None else beat.running,
        waiting=0 if beat is None else beat.waiting,
        capacity=0 if beat is None else beat.capacity,
        turns=len(turns),
        oldest_ms=min((turn.since_ms for turn in turns), default=None),
        tokens_per_s=rate,
        slow=slow,
    )


def _doing(worker: WorkerState) -> str:
    match worker.phase, worker.role:
        case "acquired", "rollout":
            return "rolls out"
        case "acquired", _:
            return "is ready to train"
        case "training", _:
            return "trains" if worker.step is None else f"trains {step_name(worker.step)}"
        case "assigned", role:
            return f"changes to {role}"
        case "loading", _:
            return "loads weights"
    return "has no role"


def _step(picture: RunPicture, policy: str) -> StepLine:
    control = picture.control
    completed = control.completed.get(policy, ())
    last = completed[-1] if completed else StepState(policy=policy, step=-1)
    step = control.steps.get(policy)
    shown = step or last
    times = {
        "batch ready": shown.ready_ms,
        "trains": shown.started_ms,
        "writes weights": shown.committed_ms,
        "published": shown.published_ms,
        "ended": shown.ended_ms,
    }
    rewards = ((shown_step(each.step), each.metrics.get("reward_mean")) for each in completed)
    return StepLine(
        policy=policy,
        step=shown_step(shown.step),
        phase=_phase(step, policy in control.finished),
        done=control.steps_done.get(policy, 0),
        finished=policy in control.finished,
        version=control.versions.get(policy),
        groups=shown.groups,
        tokens=shown.tokens,
        workers=shown.workers,
        times=tuple((name, at_ms) for name, at_ms in times.items() if at_ms is not None),
        last_seconds={name: last.metrics[name] for name in PHASES if name in last.metrics},
        rewards=tuple((number, reward) for number, reward in rewards if reward is not None),
        staleness=last.metrics.get("staleness_mean"),
    )


def _phase(step: StepState | None, finished: bool) -> str:
    if step is not None:
        return step_phase(step)
    return "ended" if finished else "waits for groups"


def _groups(picture: RunPicture, groups: list[GroupUnderWay]) -> Iterator[GroupLine]:
    opened: Counter[str] = Counter()
    turns: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    since_ms = min((group.admitted_ms for group in groups), default=picture.at_ms) - _SKEW_MS
    for fold in picture.sessions.values():
        group_of = {name: fold.row(number).group_id for name, number in fold.open.items()}
        opened.update(group_of.values())
        turns.update(group_of.get(turn.session_id, "") for turn in fold.turns.values())
        rows = fold.opened_since(since_ms)
        ended.update(row.group_id for row in rows if row.finalized_ms is not None)
    for group in groups:
        yield GroupLine(
            group_id=group.group_id,
            task_id=group.task_id,
            policy=group.policy,
            purpose=group.purpose,
            state=group.state,
            size=group.size,
            open=opened[group.group_id],
            ended=ended[group.group_id],
            turns=turns[group.group_id],
            failed=group.failed,
            reward_mean=group.reward_mean,
            admitted_ms=group.admitted_ms,
        )


def _partitions(picture: RunPicture) -> Iterator[PartitionLine]:
    for number, fold in sorted(picture.sessions.items()):
        yield PartitionLine(
            partition=number,
            manager=fold.manager,
            epoch=fold.epoch,
            open=len(fold.open),
            turns=len(fold.turns),
            without_worker=sum(not turn.worker for turn in fold.turns.values()),
        )


def _processes(picture: RunPicture) -> Iterator[ProcessLine]:
    in_order = sorted(
        picture.fleet.processes.values(), key=lambda process: (process.kind, process.name)
    )
    for process in in_order:
        state, detail = _state(process)
        yield ProcessLine(
            name=process.name,
            kind=process.kind,
            state=state,
            detail=detail,
            seen_ms=process.seen_ms,
            silent=is_silent(process, picture),
        )


def _state(process: LivingProcess) -> tuple[str, str]:
    match process.beat:
        case r.WorkerHeartbeat() as beat:
            turns = f"{beat.running} running, {beat.waiting} waiting of {beat.capacity}"
            return beat.state, turns if process.kind == "rollout" else beat.policy
        case r.GatewayHeartbeat() as beat:
            return "serves", f"{beat.in_flight} calls under way, {beat.url}"
        case r.TrainerHeartbeat() as beat:
            return beat.state, f"policy {beat.policy}, step {shown_step(beat.step)}"
        case r.ManagerStarted() as beat:
            return "started", f"manager {beat.manager}"


def _symptoms(picture: RunPicture) -> Iterator[str]:
    several = len(picture.control.completed) > 1
    for policy, steps in picture.control.completed.items():
        for line in symptoms([step.metrics for step in steps]):
            yield f"{policy}: {line}" if several else line
