"""Waits at a moment: who waits, for what, and why, from a run's picture. Pure."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from seamlessflow.console.log.run_log import RunPicture
from seamlessflow.console.models.control import StepState, WorkerState
from seamlessflow.console.models.fleet import LivingProcess
from seamlessflow.infra.printable import number_of
from seamlessflow.schemas.tokens import step_name

SILENT_MS = 5_000
"""Age of its last heartbeat from which a process is silent; heartbeats come each second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Those that wait for the same thing, for the same reason."""

    who: tuple[str, ...]
    what: str
    why: str = ""
    since_ms: int = 0
    """When the longest of these waits began; 0 if the log does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Numbers that explain waits."""

    groups: Counter[str]
    """Groups for training, by state."""
    with_agents: int
    """Open sessions that have not ended and have no turn under way."""
    without_worker: int
    """Turns under way that no worker samples."""
    turns: Counter[str]
    """Turns under way, by the worker that has them."""


def flow_of(picture: RunPicture) -> Flow:
    """Return a picture's numbers."""
    groups = picture.control.groups.values()
    turns = [turn for fold in picture.sessions.values() for turn in fold.turns.values()]
    busy = {turn.session_id for turn in turns}
    idle = 0
    for fold in picture.sessions.values():
        rows = (fold.row(number) for name, number in fold.open.items() if name not in busy)
        idle += sum(row.closed_ms is None for row in rows)
    return Flow(
        groups=Counter(group.state for group in groups if group.purpose == "train"),
        with_agents=idle,
        without_worker=sum(not turn.worker for turn in turns),
        turns=Counter(turn.worker for turn in turns if turn.worker),
    )


def waits_of(picture: RunPicture, flow: Flow) -> tuple[Wait, ...]:
    """Return all waits: of workers, steps, trainers and turns. `flow`: the picture's numbers."""
    return (
        *_of_workers(picture, flow),
        *_of_steps(picture),
        *_of_trainers(picture, flow),
        *_of_turns(picture, flow),
        *_of_silent_workers(picture, flow),
    )


def _of_workers(picture: RunPicture, flow: Flow) -> Iterator[Wait]:
    waiting: dict[tuple[str, str], list[WorkerState]] = {}
    for _, worker in sorted(picture.control.workers.items()):
        wait = _worker(worker, picture, flow)
        if wait is not None:
            waiting.setdefault(wait, []).append(worker)
    for (what, why), workers in waiting.items():
        names = tuple(worker.worker for worker in workers)
        since_ms = min(worker.since_ms for worker in workers)
        yield Wait(who=names, what=what, why=why, since_ms=since_ms)


def _worker(worker: WorkerState, picture: RunPicture, flow: Flow) -> tuple[str, str] | None:
    match worker.phase, worker.role:
        case "joined" | "released", _:
            return "a role", "the scheduler has given it none"
        case "assigned", role:
            return f"its change to {role}", worker.reason
        case "loading", _:
            return "new weights", "its turns are paused while it loads them"
        case "acquired", "rollout":
            beat = picture.fleet.worker(worker.worker, "rollout")
            if beat is None or beat.running or beat.waiting or flow.turns[worker.worker]:
                return None
            return "turns to sample", _why_no_turns(flow)
        case "acquired", "train":
            return _trains(worker, picture)
    return None


def _why_no_turns(flow: Flow) -> str:
    if flow.with_agents:
        return f"{number_of(flow.with_agents, 'open session')} with agents, none asks"
    if not flow.groups["running"]:
        ready = flow.groups["ready"] + flow.groups["in batch"]
        return f"no group is running; {ready} are ready or in a batch"
    return f"{flow.groups['running']} groups are running, and none asks"


def _trains(worker: WorkerState, picture: RunPicture) -> tuple[str, str] | None:
    step = picture.control.steps.get(worker.policy)
    if step is None or step.ready_ms is None:
        return "a batch", "no batch of its policy is ready"
    if step.started_ms is None:
        late = [
            other.worker
            for other in picture.control.workers.values()
            if other.role == "train" and other.phase == "assigned"
        ]
        return "its gang", f"not there yet: {', '.join(sorted(late))}" if late else ""
    return "the end of the step", step_phase(step)


def _of_steps(picture: RunPicture) -> Iterator[Wait]:
    for policy, step in sorted(picture.control.steps.items()):
        if step.ready_ms is not None and step.started_ms is None:
            yield Wait(
                who=(f"{step_name(step.step)} of {policy or 'the policy'}",),
                what="its gang",
                why="its batch is ready, and its workers are not",
                since_ms=step.ready_ms,
            )


def _of_trainers(picture: RunPicture, flow: Flow) -> Iterator[Wait]:
    control = picture.control
    for process in picture.fleet.processes.values():
        policy = getattr(process.beat, "policy", "")
        if process.kind != "trainer" or policy in control.steps or policy in control.finished:
            continue
        last = control.completed.get(policy, ())
        taken = f"; its last step took {last[-1].groups}" if last and last[-1].groups else ""
        yield Wait(
            who=(f"trainer of {policy}",),
            what="groups",
            why=f"{flow.groups['ready']} are ready, {flow.groups['running']} are running{taken}",
            since_ms=(last[-1].ended_ms or 0) if last else 0,
        )


def _of_turns(picture: RunPicture, flow: Flow) -> Iterator[Wait]:
    if flow.without_worker:
        turns = (turn for fold in picture.sessions.values() for turn in fold.turns.values())
        yield Wait(
            who=(number_of(flow.without_worker, "turn"),),
            what="a worker",
            why="no worker that rolls out has taken them",
            since_ms=min(turn.since_ms for turn in turns if not turn.worker),
        )


def is_silent(process: LivingProcess, picture: RunPicture) -> bool:
    """Return whether a process has sent no heartbeat for too long.

    A manager never counts as silent: it sends none, and shows its life only by claiming partitions.
    """
    return process.kind != "manager" and picture.at_ms - process.seen_ms > SILENT_MS


def _of_silent_workers(picture: RunPicture, flow: Flow) -> Iterator[Wait]:
    """Yield the turns on workers whose rollout process sends no heartbeat."""
    for process in picture.fleet.processes.values():
        turns = flow.turns[process.name] if process.kind == "rollout" else 0
        if turns and is_silent(process, picture):
            yield Wait(
                who=(number_of(turns, "turn"),),
                what=process.name,
                why="its rollout process sends no heartbeat",
                since_ms=process.seen_ms,
            )


def step_phase(step: StepState) -> str:
    """Return a step's present phase."""
    if step.started_ms is None:
        return "waits for its gang"
    if step.committed_ms is None:
        return "trains"
    if step.published_ms is None:
        return "writes its weights"
    return "ends"
