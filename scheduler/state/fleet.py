"""What `fleet` says: which processes give a sign of life, which policies there are.

A fold over `fleet`; the receiver's clock says when a sign came, so that clocks that differ do not
make a live process look dead. Called by `scheduler/controller.py`, the simulator and tests.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from schemas import records as r
from schemas.records import Record, WorkerHeartbeat


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """The newest heartbeat of a process."""

    heartbeat: WorkerHeartbeat
    seen_ms: int
    replaced: str = ""
    """Incarnation before this one; what still comes from it is ignored."""

    def alive(self, now_ms: int, timeout_ms: int) -> bool:
        """Whether the process may be counted with."""
        return self.heartbeat.state != "failed" and now_ms - self.seen_ms <= timeout_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Processes by (worker, process), and the names of the policies with weights."""

    signs: Mapping[tuple[str, str], Sign] = field(default_factory=dict)
    policies: frozenset[str] = frozenset()

    def hardware(self, worker: str) -> Mapping[str, float]:
        """Figures of the worker's device, from whichever of its processes gave them last."""
        signs = [sign for (name, _), sign in self.signs.items() if name == worker]
        known = [sign.heartbeat for sign in signs if sign.heartbeat.hardware]
        return max(known, key=lambda heartbeat: heartbeat.at_ms).hardware if known else {}


def apply(fleet: Fleet, record: Record, now_ms: int) -> Fleet:
    """The fleet after a record of `fleet` that came at `now_ms`."""
    match record:
        case WorkerHeartbeat():
            return _heard(fleet, record, now_ms)
        case r.PolicyWeights():
            return replace(fleet, policies=fleet.policies | {record.policy})
    return fleet


def _heard(fleet: Fleet, heartbeat: WorkerHeartbeat, now_ms: int) -> Fleet:
    """The first sign of an incarnation may be an old one read at start: its own stamp counts."""
    key = (heartbeat.worker, heartbeat.process)
    known = fleet.signs.get(key)
    sign = Sign(heartbeat=heartbeat, seen_ms=min(now_ms, heartbeat.at_ms))
    if known is not None and heartbeat.incarnation == known.replaced:
        return fleet
    if known is not None and heartbeat.incarnation == known.heartbeat.incarnation:
        if heartbeat.at_ms <= known.heartbeat.at_ms:
            return fleet
        sign = replace(known, heartbeat=heartbeat, seen_ms=now_ms)
    elif known is not None:
        sign = replace(sign, replaced=known.heartbeat.incarnation)
    return replace(fleet, signs={**fleet.signs, key: sign})
