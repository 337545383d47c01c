"""The agents of a simulation: they play a session for each task, turn by turn."""

from collections.abc import Callable

from scheduler.simulation.agenda import Agenda
from scheduler.simulation.engine import SimulatedSession, SimulatedTurn
from scheduler.simulation.router import Router
from scheduler.simulation.workload import Workload
from schemas.records import Task


class SimulatedAgents:
    """All agents; one more for each task."""

    def __init__(
        self,
        workload: Workload,
        agenda: Agenda,
        router: Router,
        on_session: Callable[[SimulatedSession], None],
    ) -> None:
        """`on_session` is called with each session that ends in time."""
        self._workload = workload
        self._agenda = agenda
        self._router = router
        self._on_session = on_session
        self._playing: dict[str, list[SimulatedSession]] = {}
        """Sessions that have begun, by group, until the group has ended."""
        self.begun, self.drawn = 0, 0
        """Sessions that have begun, and the tokens that they would sample in all."""
        self.cancelled = 0.0
        """Tokens of sessions that were stopped because their group was complete."""

    def play(self, task: Task) -> None:
        """Begin a session, unless the workload says that this attempt never ends."""
        if self._workload.hangs(task.group_id, task.sample, task.attempt):
            return
        drawn = self._workload.draw(task.group_id, task.sample, task.attempt)
        session = SimulatedSession(task.group_id, task.sample, task.deadline_ms, drawn)
        self._playing.setdefault(task.group_id, []).append(session)
        self.begun += 1
        self.drawn += drawn.sampled
        self._agenda.after(self._workload.section.start_s, self._ask, session)

    def end_group(self, group: str) -> None:
        """Stop the sessions of a group that is over."""
        for session in self._playing.pop(group, ()):
            if session.turn < len(session.drawn.turns):
                session.cancelled = True
                self._router.cancel(session)
                self.cancelled += sum(session.sampled.values())

    def answered(self, turn: SimulatedTurn) -> None:
        """Go on with the session of a turn that ended."""
        self._router.note_end(turn)
        session = turn.session
        if session.cancelled:
            return
        session.context = turn.whole
        wait_s = session.drawn.turns[session.turn][2]
        session.turn += 1
        if self._agenda.now_ms > session.deadline_ms:
            return  # its agent was stopped
        if session.turn == len(session.drawn.turns):
            self._agenda.after(self._workload.section.end_s, self._on_session, session)
        else:
            self._agenda.after(wait_s, self._ask, session)

    def _ask(self, session: SimulatedSession) -> None:
        added, sampled, _ = session.drawn.turns[session.turn]
        turn = SimulatedTurn(
            session=session,
            context=session.context + added,
            left=float(sampled),
            computed=session.computed,
        )
        self._agenda.after(self._workload.section.hop_s, self._router.submit, turn)
