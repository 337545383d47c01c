"""One partition whose managers a test drives step by step."""

from collections.abc import Iterable
from typing import Any

from seamlessflow.consumers.trajectories.matching.match import PromptRenderer
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record, Trajectory
from seamlessflow.schemas.topics import CONTROL, FLEET, REPLIES, REQUESTS, SESSIONS, TRAJECTORIES
from tests.builders.records.commands import request_turn
from tests.builders.records.content import message
from tests.builders.trajectories.decisions import WEIGHTS, acquired
from tests.properties.simulation.managers import Group, SteppedManager, become_owner, read_back
from tests.properties.simulation.topics import Topics

TERMS = r.SessionTerms(policy="p", max_idle_ms=60_000, max_age_ms=60_000)


class ManagedPartition:
    """A partition that one manager after the other owns."""

    def __init__(
        self, renderer: PromptRenderer, kind: type[SteppedManager] = SteppedManager
    ) -> None:
        self._kind = kind
        self.topics = Topics()
        self.topics.append(FLEET.name, 0, WEIGHTS)
        self._group, self._renderer = Group(), renderer
        self.now_ms, self._managers = 1_000, 0
        self.manager = self.successor()

    def successor(self) -> SteppedManager:
        """Start another manager and let it own the partition."""
        made = self.begun()
        become_owner(made)
        self.manager = made
        return made

    def begun(self) -> SteppedManager:
        """Start another manager, to which the partition is given but not yet assigned."""
        self._managers += 1
        made = self._kind(
            f"m{self._managers}",
            self.topics,
            self._group,
            self._renderer,  # type: ignore[arg-type]
            lambda: self.now_ms,
        )
        self._group.owners[0] = made
        made.hear(9)
        return made

    def ask(self, *commands: Record) -> None:
        """Deliver commands to the manager, but none of its own records."""
        for command in commands:
            self.topics.append(REQUESTS.name, 0, command)
        self.manager.poll_requests(9)
        self.manager.handle(9)

    def serve(self, worker: str, policy: str) -> None:
        """Let a worker acquire its role and the manager place waiting turns."""
        self.topics.append(CONTROL.name, 0, acquired(worker, 0, policy=policy))
        self.manager.hear(9)
        self.manager.look()

    def happen(self, *events: Record) -> None:
        """Append events of workers, and let the manager read all that is there."""
        for event in events:
            self.topics.append(SESSIONS.name, 0, event)
        self.settle()

    def commit(self) -> list[Trajectory]:
        """Let the manager commit; return all trajectories."""
        for _ in range(2):  # the first may end a commit of offsets that is in progress
            self.manager.look()
            self.manager.finish_commit()
            self.manager.handle(9)
        return [received.record for received in self.topics.records[TRAJECTORIES.name, 0]]  # type: ignore[misc]

    def settle(self, rounds: int = 8) -> None:
        """Let the manager read its own records back, `rounds` times."""
        for _ in range(rounds):
            read_back(self.manager)
            self.manager.look()

    def events(self, kind: type[Record]) -> list[Any]:
        """Return the events of a kind on the log."""
        return [record for record in self._records(SESSIONS.name, 0) if isinstance(record, kind)]

    def replies(self) -> list[Record]:
        """Return the replies to gateways."""
        return list(self._records(REPLIES.name, 1))

    def _records(self, topic: str, partition: int) -> Iterable[Record]:
        return [received.record for received in self.topics.records[topic, partition]]


def asked(turn_id: str, text: str = "x", **more: Any) -> r.RequestTurn:
    return request_turn(turn_id, messages=(message("user", text),), terms=TERMS, **more)
