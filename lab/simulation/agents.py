"""A simulation's agents: they play a session for each task, turn by turn.

A task may have to wait: for a place among the agents, or with `WholeBatches` for its batch.

A run ends when it trains nothing. `DroppedGroups` says so, and names the settings that drop its
groups. A real run would go on like this forever.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf

from seamlessflow.lab.simulation.agenda import Agenda
from seamlessflow.lab.simulation.engine import SimulatedSession, SimulatedTurn
from seamlessflow.lab.simulation.router import Router
from seamlessflow.lab.simulation.workload import Workload
from seamlessflow.scheduler.settings import SchedulerSettings
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record, Task

MOST_GROUPS, MOST_BATCHES = 100, 10
"""A run ends once this many groups, and the groups in this many further batches, were dropped."""


@dataclass(slots=True)
class AgentPlaces:
    """The sessions that are played at once, and the time for which others waited for a place."""

    most: float = inf
    """As `agents.concurrency`."""
    taken: int = 0
    wanted: int = 0
    """Most sessions that were played or waited at a time."""
    full_s: float = 0.0
    """Time during which a session waited."""
    _waits_since_s: float = inf

    def note_waiting(self, waiting: int, now_s: float) -> None:
        """Note how many sessions wait now."""
        self.wanted = max(self.wanted, self.taken + waiting)
        if waiting and self._waits_since_s == inf:
            self._waits_since_s = now_s
        elif not waiting and self._waits_since_s < inf:
            self.full_s += now_s - self._waits_since_s
            self._waits_since_s = inf

    def until(self, now_s: float) -> float:
        """Return the time until now during which a session waited."""
        return self.full_s + max(0.0, now_s - self._waits_since_s)


class SimulatedAgents:
    """All agents: one for each task, as far as there are places."""

    def __init__(
        self,
        workload: Workload,
        agenda: Agenda,
        router: Router,
        on_session: Callable[[SimulatedSession], None],
        most: float = inf,
    ) -> None:
        """`on_session` is called with each session that ends in time; `most` play at once."""
        self._workload = workload
        self._agenda = agenda
        self._router = router
        self._on_session = on_session
        self.places = AgentPlaces(most)
        self._waiting: deque[SimulatedSession] = deque()
        """Sessions that wait for a place, in task order."""
        self._playing: dict[str, list[SimulatedSession]] = {}
        """Sessions that have begun, by group, until the group has ended."""
        self.begun, self.drawn = 0, 0
        """Sessions that have begun, and the tokens that they would sample in all."""
        self.cancelled = 0.0
        """Tokens from sessions that were stopped because their group was complete."""
        self.overdue, self.overdue_tokens = 0, 0.0
        """Sessions that were stopped at their deadline, and their tokens."""

    def play(self, task: Task) -> None:
        """Begin a session once it has a place."""
        drawn = self._workload.draw(task.group_id, task.sample, task.attempt)
        session = SimulatedSession(task.group_id, task.sample, task.deadline_ms, drawn)
        self._playing.setdefault(task.group_id, []).append(session)
        self.begun += 1
        self.drawn += drawn.sampled
        self._waiting.append(session)
        self._begin()
        ends_s = (task.deadline_ms + 1) / 1000
        self._agenda.after(max(0.0, ends_s - self._agenda.now_s), self._stop, session)

    def end_group(self, group: str) -> None:
        """Stop the sessions in a group that is over."""
        for session in self._playing.pop(group, ()):
            if self._ended(session):
                self.cancelled += sum(session.sampled.values())

    def answered(self, turn: SimulatedTurn) -> None:
        """Continue the session whose turn ended."""
        self._router.note_end(turn)
        session = turn.session
        if session.cancelled:
            return
        session.context = turn.whole
        wait_s = session.drawn.turns[session.turn][2]
        session.turn += 1
        if session.turn == len(session.drawn.turns):
            self._agenda.after(self._workload.section.end_s, self._finish, session)
        else:
            self._agenda.after(wait_s, self._ask, session)

    def _begin(self) -> None:
        """Begin waiting sessions while there are places."""
        places = self.places
        while self._waiting and places.taken < places.most:
            session = self._waiting.popleft()
            places.taken += 1
            self._agenda.after(self._workload.section.start_s, self._ask, session)
        places.note_waiting(len(self._waiting), self._agenda.now_s)

    def _finish(self, session: SimulatedSession) -> None:
        self._free()
        self._on_session(session)

    def _free(self) -> None:
        self.places.taken -= 1
        self._begin()

    def _stop(self, session: SimulatedSession) -> None:
        """Stop a session at its deadline, unless it has ended."""
        if self._ended(session):
            self.overdue += 1
            self.overdue_tokens += sum(session.sampled.values())

    def _ended(self, session: SimulatedSession) -> bool:
        """Cut a session short; return False if it has ended already."""
        if session.cancelled or session.turn == len(session.drawn.turns):
            return False
        session.cancelled = True
        if session in self._waiting:
            self._waiting.remove(session)
            self._begin()
        else:
            self._free()
            self._router.cancel(session)
        return True

    def _ask(self, session: SimulatedSession) -> None:
        added, sampled, _ = session.drawn.turns[session.turn]
        turn = SimulatedTurn(
            session=session,
            context=session.context + added,
            left=float(sampled),
            computed=session.computed,
        )
        self._agenda.after(self._workload.section.hop_s, self._router.submit, turn)


@dataclass(slots=True)
class DroppedGroups:
    """The groups that were dropped since the last ready group, by reason."""

    by_reason: dict[str, int] = field(default_factory=dict)

    def note(self, record: Record) -> None:
        """Count a record."""
        match record:
            case r.GroupReady():
                self.by_reason = {}
            case r.GroupDropped():
                self.by_reason[record.reason] = self.by_reason.get(record.reason, 0) + 1

    def in_vain(self, settings: SchedulerSettings, overdue: int, begun: int) -> str:
        """Return why the run ends here, or nothing if it goes on.

        `overdue` sessions among the run's `begun` ones were stopped at their deadline.
        """
        count = sum(self.by_reason.values())
        pacing = settings.pacing
        if count < MOST_GROUPS + MOST_BATCHES * settings.run.groups_per_step:
            return ""
        why = (
            f"{overdue} of {begun} sessions took longer than pacing.task_timeout_s "
            f"({pacing.task_timeout_s:g} s; pacing.group_timeout_s is "
            f"{pacing.group_timeout_s:g} s)"
            if 2 * self.by_reason.get("expired", 0) >= count
            else "they were filtered (simulation.workload: success, drop_equal)"
        )
        return f"{count} groups in a row were dropped: {why}"


@dataclass(eq=False)
class WholeBatches:
    """Tasks that wait for their batch, one batch at a time: the published "one step off". Pure.

    With only `run.lag`, a step takes the groups that are ready first, and slow groups go into a
    later step. Here a batch's groups begin together once the previous batch trains. The next step
    trains exactly these groups. `size`: groups in a batch.
    """

    size: int
    _begun: set[str] = field(default_factory=set)
    """Groups that have begun and that no step has taken."""
    _batch: tuple[str, ...] = ()
    """Groups in the batch that is ready."""
    _held: deque[Task] = field(default_factory=deque)

    def hold(self, task: Task) -> None:
        """Take a task that was issued."""
        self._held.append(task)

    def apply(self, record: Record) -> bool:
        """Fold in a `control` record; return True if further groups may begin."""
        match record:
            case r.BatchReady():
                self._batch = record.groups
            case r.StepStarted():
                self._begun.difference_update(self._batch)
                return True
            case r.GroupDropped():
                self._begun.discard(record.group_id)
                return True
        return False

    def released(self) -> Iterator[Task]:
        """Yield the tasks that may begin now, in their order."""
        held, self._held = self._held, deque()
        for task in held:
            if task.group_id in self._begun or len(self._begun) < self.size:
                self._begun.add(task.group_id)
                yield task
            else:
                self._held.append(task)
