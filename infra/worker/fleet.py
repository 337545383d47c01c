"""Records of `fleet` that the processes of a worker read: their keys, and what they say.

Each of a thousand workers sends two heartbeats a second: the others' are not even decoded. The
heartbeats of training processes say where published weights are sent from.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from seamlessflow.infra.worker.roles import ENDED
from seamlessflow.schemas.records import Record, WorkerHeartbeat

PROCESS = "train"

_OF_WORKERS = (b"WorkerHeartbeat/", b"WorkerAssignment/")
_OF_OTHERS = (b"GatewayHeartbeat/", b"ManagerStarted/")


def of_worker(worker: str) -> Callable[[bytes], bool]:
    """Return a function that says if the processes of the worker read a record with this key."""
    beats = f"WorkerHeartbeat/{worker}/".encode()
    assignment = f"WorkerAssignment/{worker}".encode()

    def wanted(key: bytes) -> bool:
        if key.startswith(_OF_WORKERS):
            return key.startswith(beats) or key == assignment
        return not key.startswith(_OF_OTHERS)

    return wanted


def is_training_beat(key: bytes) -> bool:
    """Return whether a record of `fleet` with this key is a training process's heartbeat."""
    return key.startswith(b"WorkerHeartbeat/") and key.endswith(f"/{PROCESS}".encode())


@dataclass(eq=False)
class Senders:
    """Addresses by worker. `apply` and `addresses` may be called from different threads."""

    _known: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Policy and address by worker."""

    def apply(self, record: Record) -> None:
        """Fold a record in: heartbeats of training processes count."""
        if not isinstance(record, WorkerHeartbeat) or record.process != PROCESS:
            return
        if record.weights_address and record.state not in (ENDED, "failed"):
            self._known[record.worker] = record.policy, record.weights_address
        else:
            self._known.pop(record.worker, None)

    def addresses(self, policy: str) -> list[str]:
        """Return the addresses, host:port, of those that train the policy, by worker.

        A process that was killed is among them until another takes its place.
        """
        senders = sorted(self._known.copy().items())
        return [address for _, (trained, address) in senders if trained == policy]
