"""The actor: decides commands and follows up events that were read back, in owned partitions.

It calls the pure functions of `decisions` and gives their outcome to the outbox. `Ownership` and
the main loop call it, on the main thread only. No method blocks.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from functools import partial

from seamlessflow.consumers.trajectories.acting.due_sessions import DueSessions
from seamlessflow.consumers.trajectories.acting.failures import Acting, named
from seamlessflow.consumers.trajectories.acting.placement import Placement
from seamlessflow.consumers.trajectories.bus.request_ends import RequestEnds
from seamlessflow.consumers.trajectories.decisions.context import (
    Context,
    Decision,
    refuse,
)
from seamlessflow.consumers.trajectories.decisions.decide import decide
from seamlessflow.consumers.trajectories.decisions.questions import count, describe, unanswered
from seamlessflow.consumers.trajectories.matching.renderers import LongPrompts
from seamlessflow.consumers.trajectories.sessions.assemble import assembled
from seamlessflow.consumers.trajectories.sessions.fold import Folded
from seamlessflow.consumers.trajectories.sessions.partition import Partition
from seamlessflow.consumers.trajectories.sessions.replies import answered, replies
from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.infra.errors import ENDS_PROCESS
from seamlessflow.infra.kafka.client import Received
from seamlessflow.infra.rendering.tokenizer import TokensWanted
from seamlessflow.infra.telemetry.instruments import Instruments
from seamlessflow.schemas import records as r
from seamlessflow.schemas.identity import session_name
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import GatewayQuestion, Headers, SessionCommand

_SETS_A_DEADLINE = (r.SessionOpened, r.TurnStarted, r.TurnCompleted, r.SessionClosed)


class Actor:
    """Acts for the partitions that this manager owns.

    A command that cannot be decided is refused with status 500 and sent to the dead letters. A
    session that cannot go on is given up (`Failures`). Neither stops the partition. Errors that are
    still raised end the process (`ENDS_PROCESS`).
    """

    def __init__(
        self,
        acting: Acting,
        placement: Placement,
        instruments: Instruments,
        request_ends: RequestEnds,
        long_prompts: LongPrompts,
    ) -> None:
        self._failures = acting.failures
        self._long_prompts = long_prompts
        self._partitions: Mapping[int, Partition] = acting.partitions
        self._contexts = acting.contexts
        self._fleet = acting.contexts.fleet
        self._placement = placement
        self._outbox = acting.outbox
        self._telemetry = instruments.traces
        self._metrics = instruments.metrics
        self._due = DueSessions(acting, request_ends)
        self._deferred: defaultdict[int, dict[str, deque[Received]]] = defaultdict(dict)
        """Commands that wait until their session's events are read back, by partition and name."""
        self._untokenised: dict[tuple[int, str], Received] = {}
        """Each session's command that waits for its long text's tokens, by partition and name."""

    def handle_command(self, partition: Partition, received: Received) -> None:
        """Decide a command, or defer it until all its session's events are read back."""
        partition.next_request = received.offset + 1
        command = received.record
        if isinstance(command, GatewayQuestion):
            self._answer(partition, command, received)
            return
        if not isinstance(command, SessionCommand):  # unreadable
            return
        if command.command_id in partition.carried_out:
            return
        # Holds back the committed offset of `requests` until the command's event is read back.
        partition.commands[command.command_id] = received.offset
        name = session_name(command.session_id)
        deferred = self._deferred[partition.number]
        if name in partition.unread or name in deferred or partition.too_early(command):
            self._defer(partition, name).append(received)
        else:
            self._decide(partition, received)

    def handle_event(self, partition: Partition, received: Received, folded: Folded) -> None:
        """Reply and follow up after an owned partition's event was applied (`folded`)."""
        session = folded.session
        event = received.record
        self._count_event(event, folded.accepted)
        if session is None:
            self._act_on(partition, received, folded)
        elif folded.error is not None:
            self._reply(received, folded, self._outbox.reply)
            self._failures.event_failed(partition, session, received, folded.error)
        else:
            with self._failures.guard(partition, session, f"act on {named(received)}"):
                self._act_on(partition, received, folded)
        if deferred := self._deferred[partition.number]:
            name = session_name(getattr(event, "session_id", ""))
            if name in deferred:
                self._decide_deferred(partition, name)

    def _act_on(self, partition: Partition, received: Received, folded: Folded) -> None:
        event = received.record
        if answered(folded):
            # A retry gets its turn's replies again, and they must keep their bounds.
            joined = isinstance(event, r.TurnJoined | r.TurnPlayedBack)
            self._reply(
                received, folded, self._outbox.reply if joined else self._outbox.reply_merged
            )
        if folded.session is not None:
            self._follow_up(partition, folded.session, received, folded)

    def resume(self, partition: Partition) -> None:
        """Decide the commands that waited until the partition's ended sessions were known."""
        for name in list(self._deferred[partition.number]):
            self._decide_deferred(partition, name)

    def forget(self, number: int) -> None:
        """Drop a partition's deferred commands; its next owner reads them again."""
        self._deferred.pop(number, None)

    def repeat_replies(self, partition: Partition, received: Received, folded: Folded) -> None:
        """Send an event's replies, which the former owner may have sent already."""
        if folded.session is None:
            self._reply(received, folded, self._outbox.reply)
            return
        with self._failures.guard(partition, folded.session, f"answer {named(received)}"):
            self._reply(received, folded, self._outbox.reply)

    def emit(self, partition: Partition, session: Session, headers: Headers) -> None:
        """Build a finalized session's trajectory, and end the session.

        It has no tokens if it cannot be assembled.
        """
        largest = self._contexts.largest_trajectory
        made, failure = assembled(session, partition.number, largest)
        partition.emit(session, made, headers)
        if failure is not None:
            self._failures.not_assembled(partition, session.session_id, failure)

    def end_failed(self, partition: Partition, received: Received, folded: Folded) -> None:
        """End a session whose event failed under a former owner, unless that owner ended it."""
        session = folded.session
        error = folded.error
        if session is None or error is None:
            return
        if partition.sessions.get(session.session_id) is session:
            self._failures.event_failed(partition, session, received, error)

    def _reply(
        self, received: Received, folded: Folded, send: Callable[[int, Record, Headers], None]
    ) -> None:
        wanted = replies(received.record, folded)
        if not wanted:
            return
        with self._telemetry.process(received) as span:
            for number, record in wanted:
                send(number, record, span.headers or received.headers)

    def reconcile(self, partition: Partition) -> None:
        """Resume the running turns and set all sessions' alarms, after a takeover."""
        for session in partition.sessions.in_memory:
            with self._failures.guard(partition, session, "resume it"):
                self._placement.resume(partition, session)
                if session.finalized_at_ms is None:
                    self._due.expect(partition, session)
        self._due.expect_spilled(partition)

    def expect_end_of_run(self) -> None:
        """Look at all sessions again: a run has finished."""
        self._due.expect_end_of_run()

    @property
    def leaves_open(self) -> bool:
        """Return whether a finished run has a session that is open or waits for judges.

        Only sessions in memory count.
        """
        due_ms = self._contexts.run_ends.due_ms
        return any(
            (session.closed is None or session.lacking_judges)
            and due_ms(session.opened) is not None
            for partition in self._partitions.values()
            if partition.owned
            for session in partition.sessions.in_memory
        )

    def handle_deadlines(self) -> None:
        """Decide all deadlines that have passed. Called once a round."""
        now = self._contexts.clock()
        self._placement.take_back_overdue(now)
        self._due.decide(now)

    def next_alarm_s(self) -> float:
        """Return the seconds until `handle_deadlines` has something to do, at most 1."""
        times = (self._due.next_ms, self._placement.next_take_back_ms)
        next_ms = min((time for time in times if time is not None), default=None)
        return (
            1.0
            if next_ms is None
            else min(1.0, max(0.0, (next_ms - self._contexts.clock()) / 1000))
        )

    def _follow_up(
        self, partition: Partition, session: Session, received: Received, folded: Folded
    ) -> None:
        event = received.record
        # First of all: the workers' loads decide where turns dispatched below go.
        for turn in (folded.turn, *folded.cut):
            if turn is not None and folded.accepted and not turn.running:
                self._fleet.remove_turn(turn.worker, turn.incarnation)
                self._placement.trace(turn.started.turn_id, ())
        if isinstance(event, r.TurnStarted) and folded.accepted:
            self._placement.trace(event.turn_id, received.headers)
        if isinstance(event, r.SessionFinalized) and folded.accepted:
            self._contexts.fates.note_finalized(session.opened, session.closed, event.at_ms)
            self.emit(partition, session, received.headers)
        elif isinstance(event, r.TurnInterrupted) and folded.accepted:
            self._fleet.remove_turn(event.worker, event.incarnation)
            self._placement.place(partition, session, "interrupted", received.headers)
        elif isinstance(event, r.TurnDispatched):
            self._dispatched(partition, session, event, folded)
        elif isinstance(event, _SETS_A_DEADLINE):
            self._due.expect(partition, session)

    def _dispatched(
        self, partition: Partition, session: Session, event: r.TurnDispatched, folded: Folded
    ) -> None:
        turn = folded.turn
        if turn is not None and turn.running and turn.worker is None:
            # Output was appended between decision and dispatch: the continuation would begin at the
            # wrong token. The fold has taken the turn from its worker; dispatch it anew.
            self._placement.redispatch(partition, session, turn, "interrupted")
        elif not self._fleet.routable(event.worker, event.incarnation):
            self._placement.expect_hand_back(event.worker)
        self._due.expect(partition, session)

    def _decide(self, partition: Partition, received: Received) -> None:
        command: SessionCommand = received.record  # type: ignore[assignment]
        with self._telemetry.process(received, session_id=command.session_id) as span:
            headers = span.headers or received.headers
            try:
                decision = self._carried_out(partition, command, received, headers)
            except TokensWanted as wanted:
                self._await_tokens(partition, session_name(command.session_id), received, wanted)
                return
        if decision.decide_again:
            self._defer(partition, session_name(command.session_id)).appendleft(received)
        if decision.answer is not None and command.reply is not None:
            self._outbox.reply(command.reply.partition, decision.answer)
        if not decision.events:  # none will be read back
            partition.commands.pop(command.command_id, None)
        for event in decision.events:
            if isinstance(event, r.TurnStarted) and not decision.prompts:
                self._placement.add_waiting(partition, event.session_id)

    def _carried_out(
        self, partition: Partition, command: SessionCommand, received: Received, headers: Headers
    ) -> Decision:
        """Decide a command and carry that out; return the decision, which may be a refusal."""
        try:
            decision = self._decision(partition, command)
            self._outbox.carry_out(partition, decision, headers)
        except TokensWanted:
            raise
        except ENDS_PROCESS:
            raise
        except Exception as error:
            # Raised again it would end every manager that reads this command.
            self._failures.command_failed(received, error)
            context = self._contexts.now(partition)
            decision = Decision([refuse(command, context, 500, "internal_error", repr(error))])
            self._outbox.carry_out(partition, decision, headers)
        return decision

    def _decision(self, partition: Partition, command: SessionCommand) -> Decision:
        return decide(partition.find(command), command, self._contexts.now(partition))

    def _answer(self, partition: Partition, question: GatewayQuestion, received: Received) -> None:
        context = self._contexts.now(partition)
        if question.reply is None or question.expires_at_ms <= context.now_ms:
            return
        try:
            answer = self._answer_to(partition.find(question), question, context)
        except TokensWanted as wanted:
            again = partial(self._answer, partition, question, received)
            self._long_prompts.tokenise(wanted, again)
            return
        except ENDS_PROCESS:
            raise
        except Exception as error:
            self._failures.command_failed(received, error)
            answer = unanswered(question, 500, "internal_error", repr(error))
        self._outbox.reply(question.reply.partition, answer)

    def _answer_to(
        self, session: Session | None, question: GatewayQuestion, context: Context
    ) -> r.CommandAnswered:
        match question:
            case r.CountTokens():
                return count(session, question, context)
            case r.DescribeSession():
                return describe(session, question, context)

    def _defer(self, partition: Partition, name: str) -> deque[Received]:
        return self._deferred[partition.number].setdefault(name, deque())

    def _decide_deferred(self, partition: Partition, name: str) -> None:
        commands = self._deferred[partition.number][name]
        while commands and name not in partition.unread:
            if self._untokenised.get((partition.number, name)) is commands[0]:
                return
            if partition.too_early(commands[0].record):  # type: ignore[arg-type]
                return
            self._decide(partition, commands.popleft())
        if not commands:
            del self._deferred[partition.number][name]

    def _await_tokens(
        self, partition: Partition, name: str, received: Received, wanted: TokensWanted
    ) -> None:
        """Defer a command until its long text is tokenised by another thread."""
        self._defer(partition, name).appendleft(received)
        self._untokenised[partition.number, name] = received
        self._long_prompts.tokenise(wanted, partial(self._go_on, partition.number, name, received))

    def _go_on(self, number: int, name: str, received: Received) -> None:
        if self._untokenised.get((number, name)) is received:
            del self._untokenised[number, name]
        partition = self._partitions.get(number)
        if partition is not None and name in self._deferred[number]:
            self._decide_deferred(partition, name)

    def _count_event(self, event: Record, accepted: bool) -> None:
        kind = type(event).__name__
        counted = "true" if accepted else "false"
        counter = self._metrics.counter
        counter("seamlessflow_manager_events_total", type=kind, accepted=counted).inc()
        if accepted and isinstance(event, r.TurnStarted):
            counter("seamlessflow_manager_matches_total", rule=event.match_rule).inc()
        elif accepted and isinstance(event, r.TurnDispatched):
            counter("seamlessflow_manager_dispatches_total", reason=event.reason).inc()
