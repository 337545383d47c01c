"""Carries decisions out: appends events, sends prompts and replies, keeps the alarm clock.

Everything here happens on the manager's main thread and on partitions it owns.
"""

import heapq
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping

from consumers.trajectories import deadlines, dispatch
from consumers.trajectories.counting import count, not_counted
from consumers.trajectories.decide import Command, decide, refuse
from consumers.trajectories.decision import Context, Decision
from consumers.trajectories.fleet import Fleet
from consumers.trajectories.fold import Folded
from consumers.trajectories.matching import PromptRenderer
from consumers.trajectories.partition import Partition
from consumers.trajectories.replies import replies
from consumers.trajectories.session import Session, Turn
from infra.errors import DeliveryFailed
from infra.kafka import Headers, Received, dead_letter_headers
from infra.kafka_producer import Producer
from infra.metrics import Metrics
from infra.telemetry import Telemetry
from schemas import records as r
from schemas.codec import encode
from schemas.identity import session_name
from schemas.records import PolicyWeights, Record
from schemas.topics import PROMPTS, REPLIES, SESSIONS

log = logging.getLogger(__name__)
_LOOK_AGAIN_MS = 50
_SETS_A_DEADLINE = (r.SessionOpened, r.TurnStarted, r.TurnCompleted, r.SessionClosed)


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class Actor:
    """What a manager does with the partitions it owns."""

    def __init__(
        self,
        producer: Producer,
        fleet: Fleet,
        renderer: Callable[[PolicyWeights], PromptRenderer],
        partitions: Mapping[int, Partition],
        no_progress_ms: int,
        hand_back_ms: int,
        telemetry: Telemetry,
        metrics: Metrics,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._producer = producer
        self._fleet = fleet
        self._renderer = renderer
        self._partitions = partitions
        self._no_progress_ms = no_progress_ms
        self._hand_back_ms = hand_back_ms
        self._telemetry = telemetry
        self._metrics = metrics
        self._now_ms = clock
        self._doubts: dict[str, int] = {}
        """Until when a leaving worker may hand turns back."""
        self._scheduled: dict[tuple[int, str], int] = {}
        """Earliest alarm of each session."""
        self._alarms: list[tuple[int, int, str]] = []
        self._waiting: dict[tuple[int, str], None] = {}
        """Sessions with a turn that no worker could take."""
        self._served_arrivals = 0
        """Arrivals in the fleet that all waiting turns were tried with."""

    def command(self, partition: Partition, received: Received) -> None:
        """Decides a command, or keeps it until the session's earlier events are read back."""
        partition.next_request = received.offset + 1
        if isinstance(received.record, r.CountTokens):
            self._count_tokens(partition, received.record, received)
            return
        command: Command = received.record  # type: ignore[assignment]
        if command.command_id in partition.carried_out:
            return
        partition.commands[command.command_id] = received.offset
        name = session_name(command.session_id)
        if name in partition.unread or name in partition.deferred:
            partition.deferred.setdefault(name, deque()).append(received)
        else:
            self._decide(partition, received)

    def folded(self, partition: Partition, received: Received, folded: Folded) -> None:
        """Does what an event that was read back asks for."""
        session, event = folded.session, received.record
        self._count(event, folded.accepted)
        if folded.accepted:
            self.reply(received, folded)
        if session is not None:
            self._follow(partition, session, received, folded)
        if partition.deferred:
            name = session_name(getattr(event, "session_id", ""))
            if name in partition.deferred:
                self._take_up(partition, name)

    def reply(self, received: Received, folded: Folded) -> None:
        """Forwards an accepted event to the gateway that waits for it."""
        wanted = replies(received.record, folded)
        if not wanted:
            return
        with self._telemetry.span("process sessions", received.headers) as span:
            for number, record in wanted:
                headers = span.headers or received.headers
                self._producer.send(REPLIES.name, record, partition=number, headers=headers)

    def departed(self, worker: str, incarnation: str | None = None) -> None:
        """Takes the turns from a worker that will not finish them."""
        for partition in self._owned():
            for session in list(partition.sessions.values()):
                for turn in list(session.running.values()):
                    if turn.worker == worker and incarnation in (None, turn.incarnation):
                        self._again(partition, session, turn, "worker_lost")

    def doubt(self, worker: str) -> None:
        """Takes a leaving worker's turns from it unless it hands them back in time."""
        self._doubts.setdefault(worker, self._now_ms() + self._hand_back_ms)

    def _settle_doubts(self, now: int) -> None:
        for worker in [worker for worker, due in self._doubts.items() if due <= now]:
            del self._doubts[worker]
            if worker not in self._fleet.workers:
                self.departed(worker)

    def serve_waiting(self) -> None:
        """Tries anew to place the turns that no worker could take."""
        arrivals = self._fleet.arrivals
        if arrivals == self._served_arrivals:
            return
        self._served_arrivals = arrivals
        waiting, self._waiting = self._waiting, {}
        for number, session_id in waiting:
            partition = self._partitions.get(number)
            if partition is None or not partition.owned:
                continue  # whoever owns it next looks after all its turns
            session = partition.sessions.get(session_id)
            if partition.reading_back(session_id):
                self._waiting[number, session_id] = None
                self._served_arrivals = -1  # not tried yet
            elif session is not None:
                self._place(partition, session, "interrupted", ())

    def recount(self) -> None:
        """Counts the workers' load anew from the turns under way."""
        self._fleet.recount(
            (turn.worker, turn.incarnation)
            for partition in self._owned()
            for session in partition.sessions.values()
            for turn in session.running.values()
            if turn.worker is not None
        )

    def overdue(self) -> None:
        """Does what deadlines that have passed ask for."""
        now = self._now_ms()
        self._settle_doubts(now)
        while self._alarms and self._alarms[0][0] <= now:
            due_ms, number, session_id = heapq.heappop(self._alarms)
            if self._scheduled.get((number, session_id)) != due_ms:
                continue  # an earlier alarm of the session took its place
            del self._scheduled[number, session_id]
            partition = self._partitions.get(number)
            session = partition.sessions.get(session_id) if partition else None
            if partition is None or session is None or not partition.owned:
                continue
            due = deadlines.due_ms(session)
            if due is not None and due <= now and not partition.reading_back(session_id):
                self._carry_out(partition, deadlines.overdue(session, self._context(partition)), ())
            if due is not None:
                self._alarm(partition, session, max(due, now + _LOOK_AGAIN_MS))

    def next_alarm_s(self) -> float:
        """Seconds until the next deadline, at most one."""
        next_ms = min(
            [*self._doubts.values(), *(alarm[0] for alarm in self._alarms[:1])], default=None
        )
        return 1.0 if next_ms is None else min(1.0, max(0.0, (next_ms - self._now_ms()) / 1000))

    def reconcile(self, partition: Partition) -> None:
        """After a takeover: dispatches what is undispatched, repeats what may be lost."""
        context = self._context(partition)
        for session in list(partition.sessions.values()):
            for turn in list(session.running.values()):
                again = dispatch.resent(session, turn, context)
                if again:
                    self._carry_out(partition, Decision([], again), ())
                else:
                    self._again(partition, session, turn, "worker_lost")
            if session.finalized_at_ms is None:
                self._alarm(partition, session, deadlines.due_ms(session))

    def _follow(
        self, partition: Partition, session: Session, received: Received, folded: Folded
    ) -> None:
        event = received.record
        for turn in (folded.turn, *folded.cut):
            if turn is not None and folded.accepted and not turn.running:
                self._fleet.release(turn.worker, turn.incarnation)
        if isinstance(event, r.SessionFinalized) and folded.accepted:
            partition.emit(session)
            partition.end(session)
        elif isinstance(event, r.TurnInterrupted) and folded.accepted:
            self._fleet.release(event.worker, event.incarnation)
            self._place(partition, session, "interrupted", received.headers)
        elif isinstance(event, r.TurnDispatched):
            self._dispatched(partition, session, event, folded)
        elif isinstance(event, _SETS_A_DEADLINE):
            self._alarm(partition, session, deadlines.due_ms(session))

    def _dispatched(
        self, partition: Partition, session: Session, event: r.TurnDispatched, folded: Folded
    ) -> None:
        turn = folded.turn
        if turn is not None and turn.running and turn.worker is None:
            # Output came in between, so that this dispatch would leave a hole or sample twice.
            self._again(partition, session, turn, "interrupted")
        elif not self._fleet.routable(event.worker, event.incarnation):
            self.doubt(event.worker)
        self._alarm(partition, session, deadlines.due_ms(session))

    def _decide(self, partition: Partition, received: Received) -> None:
        command: Command = received.record  # type: ignore[assignment]
        with self._telemetry.span(
            "process requests", received.headers, session_id=command.session_id
        ) as span:
            decision = self._decision(partition, command, received)
            self._carry_out(partition, decision, span.headers or received.headers)
        if decision.decide_again:
            name = session_name(command.session_id)
            partition.deferred.setdefault(name, deque()).appendleft(received)
        if not decision.events:
            partition.commands.pop(command.command_id, None)
        for event in decision.events:
            if isinstance(event, r.TurnStarted) and not decision.prompts:
                self._waiting[partition.number, event.session_id] = None

    def _decision(self, partition: Partition, command: Command, received: Received) -> Decision:
        session = partition.find(command)
        context = self._context(partition)
        try:
            return decide(session, command, context)
        except Exception as error:
            # One poisonous command must not stop the partition: it goes to the dead letters.
            log.exception("command %s of %s", command.command_id, command.session_id)
            self.bury(received, repr(error))
            return Decision([refuse(command, context, 500, "internal_error", repr(error))])

    def _count_tokens(
        self, partition: Partition, command: r.CountTokens, received: Received
    ) -> None:
        context = self._context(partition)
        if command.reply is None or command.expires_at_ms <= context.now_ms:
            return
        try:
            answer = count(partition.find(command), command, context)
        except Exception as error:
            log.exception("command %s of %s", command.command_id, command.session_id)
            self.bury(received, repr(error))
            answer = not_counted(command, 500, "internal_error", repr(error))
        self._producer.send(REPLIES.name, answer, partition=command.reply.partition)

    def bury(self, received: Received, error: str) -> None:
        """Puts a record that cannot be carried out on the dead-letter topic."""
        place = received.topic, received.partition, received.offset
        self._producer.send_bytes(
            f"{received.topic}.dlq",
            encode(received.record),
            received.key,
            received.partition,
            dead_letter_headers(*place, error),
        )

    def _take_up(self, partition: Partition, name: str) -> None:
        commands = partition.deferred[name]
        while commands and name not in partition.unread:
            self._decide(partition, commands.popleft())
        if not commands:
            del partition.deferred[name]

    def _place(self, partition: Partition, session: Session, reason: str, headers: Headers) -> None:
        for turn in list(session.running.values()):
            if turn.worker is None:
                self._again(partition, session, turn, reason, headers)

    def _again(
        self,
        partition: Partition,
        session: Session,
        turn: Turn,
        reason: str,
        headers: Headers = (),
    ) -> None:
        decision = dispatch.again(session, turn, reason, self._context(partition))
        if decision.events:
            self._carry_out(partition, decision, headers)
        else:
            self._waiting[partition.number, session.session_id] = None

    def _carry_out(self, partition: Partition, decision: Decision, headers: Headers) -> None:
        """Appends the events; only once these are on the log are the prompts sent (I1).

        Sent at the same time, a fast worker's output could come before the dispatch it answers.
        """
        partition.appended(decision.events)
        for _, prompt in decision.prompts:
            if isinstance(prompt, r.GenerateTurn) and prompt.worker in self._fleet.workers:
                self._fleet.workers[prompt.worker].load += 1
        if not decision.events:
            self._send_prompts(decision, headers)

        def appended(failure: DeliveryFailed | None, _: int) -> None:
            if failure is not None:
                raise failure  # ends the process: what was decided is not on the log
            self._send_prompts(decision, headers)

        for event in decision.events:
            last = event is decision.events[-1] and bool(decision.prompts)
            self._producer.send(
                SESSIONS.name,
                event,
                key=event.session_id,  # type: ignore[attr-defined]
                partition=partition.number,
                headers=headers,
                on_delivery=appended if last else None,
            )

    def _send_prompts(self, decision: Decision, headers: Headers) -> None:
        for slot, prompt in decision.prompts:
            self._producer.send(PROMPTS.name, prompt, partition=slot, headers=headers)

    def _count(self, event: Record, accepted: bool) -> None:
        kind = type(event).__name__
        self._metrics.counter(
            "seamlessflow_manager_events_total", type=kind, accepted=str(accepted).lower()
        ).inc()
        if accepted and isinstance(event, r.TurnStarted):
            self._metrics.counter("seamlessflow_manager_matches_total", rule=event.match_rule).inc()
        elif accepted and isinstance(event, r.TurnDispatched):
            self._metrics.counter(
                "seamlessflow_manager_dispatches_total", reason=event.reason
            ).inc()

    def _alarm(self, partition: Partition, session: Session | None, due: int | None) -> None:
        if due is None or session is None:
            return
        key = partition.number, session.session_id
        if due < self._scheduled.get(key, due + 1):
            self._scheduled[key] = due
            heapq.heappush(self._alarms, (due, *key))

    def _context(self, partition: Partition) -> Context:
        return Context(
            self._fleet,
            self._renderer,
            partition.number,
            partition.epoch,
            self._now_ms(),
            self._no_progress_ms,
            partition.used,
            partition.owner_since_ms,
        )

    def _owned(self) -> list[Partition]:
        return [partition for partition in self._partitions.values() if partition.owned]
