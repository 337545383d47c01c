"""The trajectory manager without threads and connections: the same code reads, folds, decides,
writes and commits; the simulation decides when.

Everything on its way to the main loop stays in the manager's own inbox, in the order it came.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from seamlessflow.consumers.trajectories.bus.connections import Connections
from seamlessflow.consumers.trajectories.bus.inbox import ManagerInbox
from seamlessflow.consumers.trajectories.bus.outbox import Echoes
from seamlessflow.consumers.trajectories.decisions.context import ControlTerms, JudgeTerms, RunTerms
from seamlessflow.consumers.trajectories.manager import Manager
from seamlessflow.consumers.trajectories.matching.match import PromptRenderer
from seamlessflow.consumers.trajectories.sessions.partition import PartitionProgress
from seamlessflow.consumers.trajectories.settings import ManagerSection
from seamlessflow.infra.kafka.client import Received
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.settings import TelemetrySettings
from seamlessflow.infra.telemetry.instruments import Instruments
from seamlessflow.infra.telemetry.tracing import telemetry
from seamlessflow.schemas.records import Record, Trajectory, TurnJoined, TurnStarted
from seamlessflow.schemas.topics import CONTROL, ENDED_SESSIONS, FLEET, REQUESTS, TRAJECTORIES
from tests.builders.trajectories.spilled_states import SpilledStates
from tests.properties.choices import Choices
from tests.properties.simulation.manager_doubles import (
    SteppedCommitter,
    SteppedReaders,
    SteppedRenderers,
)
from tests.properties.simulation.topics import Sending, Topics

_INSTRUMENTS = Instruments(telemetry(TelemetrySettings(), "manager", "test"))


@dataclass
class Group:
    """The broker's state of the consumer group: owners of partitions, committed offsets."""

    committed: dict[int, tuple[int, str]] = field(default_factory=dict)
    owners: dict[int, "SteppedManager"] = field(default_factory=dict)
    progress: list[tuple[int, str]] = field(default_factory=list)
    """All that was ever committed: partition and metadata."""
    decided_at: dict[tuple[str, int], int] = field(default_factory=dict)
    """Position in its partition when a turn was begun or joined, by command and epoch."""
    silence_ended_ms: dict[tuple[str, int], int] = field(default_factory=dict)
    """End of the last silence that its manager took for an outage, then, by the same."""


class SteppedManager(Manager):
    """The real manager with other connections."""

    settings = ManagerSection(commit_interval_s=1e-9)
    control = ControlTerms()
    """Rule that ends turns early; without a name there is none."""
    judges = JudgeTerms()
    """Judges that sessions wait for."""

    def __init__(
        self, name: str, topics: Topics, group: Group, renderer: Renderer, clock: Callable[[], int]
    ) -> None:
        self.alive = True
        self.frozen = False
        self.topics = topics
        self.group = group
        self.sending = self.sends(topics)
        self.requests: dict[int, int] = {}
        """Offset at which it reads `requests`."""
        self._leaving_done: dict[int, threading.Event] = {}
        self._inbox, self._echoes = ManagerInbox(), Echoes()
        self.readers = SteppedReaders(topics, self._echoes)
        self.committer = SteppedCommitter(self.finish_commit)
        self._control = len(topics.records[CONTROL.name, 0])
        self._policies = 0
        self.spilled = SpilledStates()
        super().__init__(
            self.settings,
            self._stepped(name),
            SteppedRenderers(self.renders(renderer)),  # type: ignore[arg-type]
            _INSTRUMENTS,
            self.spilled,
            RunTerms(self.control, self.judges),
            clock,
        )
        self.hear(len(topics.records[FLEET.name, 0]))

    def _stepped(self, name: str) -> Connections:
        return Connections(
            name,
            self._inbox,
            self._echoes,
            self.readers,  # type: ignore[arg-type]
            self.sending,  # type: ignore[arg-type]
            self.committer,  # type: ignore[arg-type]
        )

    def sends(self, topics: Topics) -> Sending:
        """Return the producer of its records."""
        return Sending(topics, self._note)

    def renders(self, renderer: Renderer) -> PromptRenderer:
        """Return the renderer of its prompts."""
        return renderer

    @property
    def awake(self) -> bool:
        """Return True if the manager is neither dead nor frozen."""
        return self.alive and not self.frozen

    def assigned(self, partition: int) -> None:
        """Assign a partition, as the broker does."""
        offset, metadata = self.group.committed.get(partition, (0, ""))
        self.requests[partition] = offset
        partitions = {partition: (offset, PartitionProgress.decode(metadata))}
        self._inbox.post(partial(self._ownership.assigned, partitions))

    def has_left(self, partition: int) -> bool:
        """Return True if the manager has given up a partition that was revoked."""
        done = self._leaving_done.get(partition)
        return done is None or done.is_set()

    def revoked(self, partition: int) -> None:
        """Revoke a partition, as the broker does."""
        self._leaving_done[partition] = done = threading.Event()
        self.requests.pop(partition, None)
        self._inbox.post(partial(self._ownership.revoked, [partition], done))

    def poll_requests(self, most: int) -> bool:
        """Poll `requests`, as its thread does; return True if there was anything."""
        batch: list[Received] = []
        for partition, start in self.requests.items():
            records = self.topics.read((REQUESTS.name, partition), start, most)
            self.requests[partition] = start + len(records)
            batch += records
        if batch:
            self._inbox.post(batch)
        self.readers.answer()
        return bool(batch)

    def poll_sessions(self, most: int) -> bool:
        """Poll `sessions`, as its thread does; return True if there was anything."""
        batch = self.readers.poll(most)
        if batch:
            self._inbox.post(batch)
        self.readers.obey()
        return bool(batch)

    def hear(self, most: int) -> bool:
        """Read records of `control` and `fleet`; return True if there were any."""
        control = self.topics.read((CONTROL.name, 0), self._control, most)
        fleet = self.topics.read((FLEET.name, 0), self._policies, most)
        self._control += len(control)
        self._policies += len(fleet)
        for received in (*fleet, *control):
            self._receive(received)
        return bool(control or fleet)

    def handle(self, most: int) -> bool:
        """Handle batches of the inbox, as the main loop does; return True if there was any."""
        handled = False
        for _ in range(most):
            batch = self._inbox.next_batch(0)
            if batch is None:
                break
            handled = True
            self._handle_batch(batch)
        return handled

    def look(self) -> None:
        """Run the rest of a round of the main loop."""
        self._ownership.look()
        self._request_ends.look()
        self._actor.handle_deadlines()
        self._spilling.look()
        self._placement.place_waiting()
        self._placement.even_out()
        self._placement.recount()
        self._commit_schedule.commit()

    def owns(self, partition: int) -> bool:
        """Return True if the manager owns the partition."""
        held = self._partitions.get(partition)
        return held is not None and held.owned

    def open_sessions(self) -> list[str]:
        """Return its sessions that are not finalized."""
        return [name for held in self._partitions.values() for name in held.sessions]

    def unfinished(self) -> bool:
        """Return True if the manager still has something to do."""
        return bool(self.open_sessions()) or any(
            held.emitted or not held.owned for held in self._partitions.values()
        )

    def finish_commit(self) -> bool:
        """End the transaction; it commits if this manager still owns all its partitions."""
        job = self.committer.job
        if job is None:
            return False
        if not self.sending.settled(job.sent):
            self.sending.flush()
        self.committer.job = None
        took = all(self.group.owners.get(number) is self for number in job.offsets)
        took = took and all(number in self.requests for number in job.offsets)
        if took:
            for number, emissions in job.emissions.items():
                for emission in emissions:
                    self.publish(emission.trajectory)
                    self.topics.append(ENDED_SESSIONS.name, number, emission.ended)
            for partition, (offset, progress) in job.offsets.items():
                self.group.committed[partition] = (offset, progress.encode())
                self.group.progress.append((partition, progress.encode()))
        self.committer.done(took)
        return True

    def _note(self, partition: int, record: Record) -> None:
        if isinstance(record, TurnStarted | TurnJoined):
            read = self._partitions[partition].position
            decision = record.command_id, record.epoch
            self.group.decided_at[decision] = read
            self.group.silence_ended_ms[decision] = self._outages.ended_ms()

    def publish(self, trajectory: Trajectory) -> None:
        """Write a committed trajectory to its topic."""
        self.topics.append(TRAJECTORIES.name, 0, trajectory)

    def kill(self, choices: Choices) -> None:
        """End without another record."""
        self.sending.die(choices)
        self.alive = False


def become_owner(manager: SteppedManager) -> None:
    """Read until the manager owns partition 0; its first claim may have an epoch that is taken."""
    if 0 not in manager.requests:
        manager.assigned(0)
    for _ in range(5):
        read_back(manager)
    assert manager.owns(0)


def read_back(manager: SteppedManager) -> None:
    """Deliver and read what the manager sent, then what its reader was assigned meanwhile."""
    manager.handle(9)
    manager.readers.answer()
    manager.sending.flush()
    manager.poll_sessions(9)
    manager.handle(9)
