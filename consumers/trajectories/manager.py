"""The trajectory manager's main loop. All of it runs on the thread that calls `Manager.run`.

Reader threads fill the inbox. Each round applies the records in it. Records of `sessions` and
`requests` go through `Ownership`, which passes on those of owned partitions to `Actor`. Records of
`fleet` and `control` go to `RolloutFleet` and `SessionFates`. `Actor` writes through `Outbox`. The
round ends with deadlines, waiting turns and the next commit.

A round waits for the inbox only: sending queues records, and transactions run on the committer's
thread. The exception is a rebalance, which waits for the transaction in progress.

Two managers of one name would end each other's transactions for ever. The order of their
announcements on `fleet` decides (`Succession`): the newest goes on, earlier ones end. So a manager
that stands still can be replaced. It ends when it goes on.
"""

import logging
import time
from collections.abc import Callable, Sequence

from seamlessflow.consumers.trajectories.acting.actor import Actor
from seamlessflow.consumers.trajectories.acting.failures import Acting, Failures
from seamlessflow.consumers.trajectories.acting.ownership import Ownership
from seamlessflow.consumers.trajectories.acting.placement import Placement
from seamlessflow.consumers.trajectories.acting.spilling import Spilling
from seamlessflow.consumers.trajectories.bus.commit_schedule import CommitSchedule
from seamlessflow.consumers.trajectories.bus.connections import Connections, close
from seamlessflow.consumers.trajectories.bus.inbox import Outages
from seamlessflow.consumers.trajectories.bus.outbox import Outbox
from seamlessflow.consumers.trajectories.bus.request_ends import RequestEnds
from seamlessflow.consumers.trajectories.decisions.context import Contexts, RunTerms
from seamlessflow.consumers.trajectories.decisions.fleet import RolloutFleet
from seamlessflow.consumers.trajectories.decisions.training import RunEnds, SessionFates
from seamlessflow.consumers.trajectories.matching.renderers import LongPrompts, Renderers
from seamlessflow.consumers.trajectories.sessions.open_sessions import SpillStore
from seamlessflow.consumers.trajectories.sessions.partition import Partition
from seamlessflow.consumers.trajectories.settings import ManagerSection
from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.errors import MemberReplaced, SeamlessFlowError
from seamlessflow.infra.kafka.client import Received
from seamlessflow.infra.process import collect_seldom, ready
from seamlessflow.infra.telemetry.instruments import Instruments
from seamlessflow.schemas.records import ManagerStarted, PolicyWeights, Record, RunFinished
from seamlessflow.schemas.releases import this_release
from seamlessflow.schemas.topics import REQUESTS, SESSIONS


class ManagerReplaced(SeamlessFlowError):
    """Error: a newer manager with the same name has started."""

    lasting = True

    def __init__(self, member: str, manager: str, newer: str) -> None:
        self.member = member
        self.manager = manager
        self.newer = newer
        super().__init__(
            f"{manager} ends: {newer} has started under the same name, {member!r} "
            "(SEAMLESSFLOW_MANAGER__SLOT); managers that run side by side have different names"
        )


class Succession:
    """One manager's place among the managers with its name."""

    def __init__(self, member: str, manager: str) -> None:
        self._member = member
        self._manager = manager
        self._announced = False

    def announcement(self, now_ms: int) -> ManagerStarted:
        """Return the record that ends earlier managers with this name."""
        return ManagerStarted(
            member=self._member,
            manager=self._manager,
            at_ms=now_ms,
            release=this_release().version,
        )

    def apply(self, started: ManagerStarted) -> None:
        """Apply the next announcement. Raises `ManagerReplaced` if it follows the manager's own."""
        if started.member != self._member:
            return
        if started.manager == self._manager:
            self._announced = True
        elif self._announced:
            raise self.replaced(started.manager)

    def replaced(self, newer: str) -> ManagerReplaced:
        """Return the error that ends this manager in favour of a newer one."""
        return ManagerReplaced(self._member, self._manager, newer)


_log = logging.getLogger(__name__)
_HOUSEKEEPING_EVERY_S = 1.0
_CLOSING_S = 5.0
"""Longest time to close a finished run's sessions when the manager ends."""


class Manager:
    """One member of the managers' Kafka consumer group."""

    actor_class = Actor
    """The actor's class; tests put a faulty one here."""

    def __init__(
        self,
        settings: ManagerSection,
        connections: Connections,
        renderers: Renderers,
        instruments: Instruments,
        spilled: SpillStore,
        terms: RunTerms,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        hand_back_ms = int(settings.hand_back_s * 1000)
        self._name = name = connections.manager
        self._succession = Succession(settings.slot, name)
        self._connections = connections
        self._partitions: dict[int, Partition] = {}
        self._renderers = renderers
        self._fleet = RolloutFleet()
        self._fates = SessionFates()
        self._run_ends = RunEnds()
        self._clock = clock
        self._outages = Outages(clock)
        contexts = self._contexts(settings, terms)
        self._outbox = outbox = Outbox(connections.producer, connections.echoes, self._fleet)
        metrics = instruments.metrics
        failures = Failures(contexts, outbox, metrics)
        acting = Acting(self._partitions, contexts, outbox, failures)
        self._placement = Placement(acting, hand_back_ms)
        self._request_ends = ends = RequestEnds(
            self._partitions, connections.readers.ask_for_bounds, connections.inbox, clock
        )
        self._long_prompts = long_prompts = LongPrompts(connections.inbox.post)
        self._actor = self.actor_class(acting, self._placement, instruments, ends, long_prompts)
        self._ownership = Ownership(name, acting, connections, self._actor, ends)
        self._commit_schedule = CommitSchedule(self._partitions, connections, settings, metrics)
        budget_bytes = int(settings.memory_mb * 1_000_000)
        self._spilling = Spilling(self._partitions, spilled, budget_bytes, metrics)
        self._next_housekeeping = 0.0

    def _contexts(self, settings: ManagerSection, terms: RunTerms) -> Contexts:
        return Contexts(
            self._fleet,
            self._renderers.for_policy,
            int(settings.no_progress_s * 1000),
            self._clock,
            self._connections.largest_trajectory,
            self._fates,
            self._outages.ended_ms,
            self._run_ends,
            terms,
        )

    def run(self, stopping: Callable[[], bool]) -> None:
        """Serve until `stopping()` is true; it is called once a round.

        Blocks at the start until `fleet` is read to its end, and at the end for the transaction in
        progress. Raises `ManagerReplaced`, a reader thread's error, `DeliveryFailed` for a record
        that Kafka did not take, and Kafka's own errors. The process then ends and another member
        takes over.
        """
        collect_seldom()
        self._connections.readers.read_fleet_to_end()
        self._outbox.announce(self._succession.announcement(self._clock()))
        self._ownership.join()
        ready(_log, "%s is ready", self._name)
        try:
            while not stopping():
                self._round()
            self._close_of_finished_runs()
        except MemberReplaced as error:
            raise self._succession.replaced("another manager") from error
        finally:
            self._ownership.leave()
            self._long_prompts.close()
            close(self._connections)

    def _close_of_finished_runs(self) -> None:
        """Close sessions that a finished run's agents left open; the agents have ended already."""
        if self._run_ends.finished_ms is None:
            return
        self._run_ends.grace_ms = 0
        self._actor.expect_end_of_run()
        deadline_s = time.monotonic() + _CLOSING_S
        while self._actor.leaves_open and time.monotonic() < deadline_s:
            self._round()

    def _round(self) -> None:
        # At least 1 ms, so that the loop does not spin while a due commit is still in progress.
        wait_s = min(self._actor.next_alarm_s(), self._commit_schedule.due_in_s)
        for batch in self._connections.inbox.batches(max(wait_s, 0.001)):
            self._handle_batch(batch)
        self._ownership.look()
        self._request_ends.look()
        self._actor.handle_deadlines()
        self._spilling.look()
        self._placement.place_waiting()
        self._placement.even_out()
        self._commit_schedule.commit()
        self._housekeeping()

    def _handle_batch(self, batch: Sequence[Received]) -> None:
        if batch:
            self._outages.read_records()
        for received in batch:
            self._receive(received)
        # Before the next wait: merging must not delay a reply.
        self._outbox.flush()

    def _receive(self, received: Received) -> None:
        if received.topic == SESSIONS.name:
            self._ownership.handle_event(received)
        elif received.topic == REQUESTS.name:
            self._ownership.handle_command(received)
        else:
            self._apply_to_fleet(received.record)

    def _apply_to_fleet(self, record: Record) -> None:
        if isinstance(record, PolicyWeights):
            # Reads the tokenizer's files now, so that no request has to wait for them.
            self._renderers.prepare(record)
        elif isinstance(record, ManagerStarted):
            self._succession.apply(record)
        self._fates.apply(record)
        self._run_ends.apply(record)
        if isinstance(record, RunFinished):
            self._actor.expect_end_of_run()
        departure = self._fleet.apply(record, self._clock())
        if departure is not None:
            self._placement.departed(departure)

    def _housekeeping(self) -> None:
        """Remove silent workers, recount loads and update the gauges, once a second."""
        if time.monotonic() < self._next_housekeeping:
            return
        self._next_housekeeping = time.monotonic() + _HOUSEKEEPING_EVERY_S
        for departure in self._fleet.expire(self._clock()):
            self._placement.departed(departure)
        self._placement.recount()
        self._spilling.measure()
