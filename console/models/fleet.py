"""A run's state on `fleet`: each process's last heartbeat, and the policies. A pure fold.

`fleet` is compacted. For an old moment it may lack a record, if a later one with the same key
replaced it.
"""

from dataclasses import dataclass, field
from typing import Self

from seamlessflow.infra.kafka.client import Received
from seamlessflow.infra.worker.roles import ENDED
from seamlessflow.schemas import records as r

Beat = r.WorkerHeartbeat | r.GatewayHeartbeat | r.TrainerHeartbeat | r.ManagerStarted


@dataclass(frozen=True, slots=True)
class LivingProcess:
    """A process that was alive when it wrote its last heartbeat."""

    name: str
    kind: str
    """`rollout`, `train`, `gateway`, `trainer` or `manager`."""
    seen_ms: int
    beat: Beat


@dataclass
class FleetFold:
    """The fold of `fleet`."""

    processes: dict[str, LivingProcess] = field(default_factory=dict)
    """By heartbeat key. Processes that ended in order are left out."""
    policies: dict[str, r.PolicyWeights] = field(default_factory=dict)

    def copy(self) -> Self:
        """Return a copy that no later record changes."""
        return type(self)(self.processes.copy(), self.policies.copy())

    def apply(self, item: Received) -> None:
        """Fold a record in."""
        record = item.record
        at_ms = item.timestamp_ms
        match record:
            case r.WorkerHeartbeat():
                key = f"worker/{record.worker}/{record.process}"
                process = LivingProcess(record.worker, record.process, at_ms, record)
                self._beat(key, process, record.state == ENDED)
            case r.GatewayHeartbeat():
                process = LivingProcess(record.gateway, "gateway", at_ms, record)
                self._beat(f"gateway/{record.gateway}", process, record.ending)
            case r.TrainerHeartbeat():
                process = LivingProcess(record.trainer, "trainer", at_ms, record)
                self._beat(f"trainer/{record.policy}", process, record.ending)
            case r.ManagerStarted():
                process = LivingProcess(record.member, "manager", at_ms, record)
                self._beat(f"manager/{record.member}", process, False)
            case r.PolicyWeights():
                self.policies[record.policy] = record

    def worker(self, worker: str, process: str) -> r.WorkerHeartbeat | None:
        """Return the last heartbeat of a worker's process, or None if it has none."""
        alive = self.processes.get(f"worker/{worker}/{process}")
        return alive.beat if alive and isinstance(alive.beat, r.WorkerHeartbeat) else None

    def _beat(self, key: str, process: LivingProcess, ended: bool) -> None:
        if ended:
            self.processes.pop(key, None)
        else:
            self.processes[key] = process
