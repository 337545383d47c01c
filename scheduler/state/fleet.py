"""The fold of `fleet`: each process's newest heartbeat, and the policies that have weights.

Heartbeats are dated by the reader's clock, so a worker whose clock differs does not look lost.
Called by `scheduler/journal.py`, the simulator and tests.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import exp

from seamlessflow.infra.worker.roles import ENDED
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record, WorkerHeartbeat

GONE = ("failed", ENDED)
"""States in a process's last heartbeat, when it is no longer a member."""
MEAN_MS = 30_000
"""Time over which queued turns are averaged, longer than the waves in which agents ask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestHeartbeat:
    """A process's newest heartbeat and when it was read."""

    heartbeat: WorkerHeartbeat
    seen_ms: int
    replaced: str = ""
    """Incarnation before this one; its late heartbeats are ignored."""

    def alive(self, now_ms: int, timeout_ms: int) -> bool:
        """Return True if the process may be a member of the fleet."""
        return self.heartbeat.state not in GONE and now_ms - self.seen_ms <= timeout_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Heartbeats by (worker, process), and the policies' weights."""

    heartbeats: Mapping[tuple[str, str], LatestHeartbeat] = field(default_factory=dict)
    weights: Mapping[str, r.PolicyWeights] = field(default_factory=dict)
    """Each policy's newest weights."""
    gateways: Mapping[str, int] = field(default_factory=dict)
    """When each gateway's last heartbeat came, unless the gateway ended in order."""

    turns: Mapping[str, int] = field(default_factory=dict)
    """Turns that wait or run, by policy, from the newest heartbeats."""
    queued: Mapping[str, float] = field(default_factory=dict)
    """The mean of `turns` over the last half minute."""
    counted_ms: int = 0

    @property
    def policies(self) -> frozenset[str]:
        """Names of policies with weights."""
        return frozenset(self.weights)

    def hardware(self, worker: str) -> Mapping[str, float]:
        """Return the device's newest figures from any of the worker's processes."""
        newest: WorkerHeartbeat | None = None
        for role in ("rollout", "train"):
            latest = self.heartbeats.get((worker, role))
            if latest is not None and latest.heartbeat.hardware:
                sent = latest.heartbeat
                newest = sent if newest is None or sent.at_ms > newest.at_ms else newest
        return newest.hardware if newest is not None else {}


def apply(fleet: Fleet, record: Record, now_ms: int) -> Fleet:
    """Return the fleet after a `fleet` record that was read at `now_ms`."""
    match record:
        case WorkerHeartbeat():
            return _latest(fleet, record, now_ms)
        case r.GatewayHeartbeat(gateway=name):
            others = {other: seen for other, seen in fleet.gateways.items() if other != name}
            seen = {} if record.ending else {name: min(now_ms, record.at_ms)}
            return replace(fleet, gateways={**others, **seen})
        case r.PolicyWeights():
            return replace(fleet, weights={**fleet.weights, record.policy: record})
    return fleet


def turns_of(heartbeat: WorkerHeartbeat) -> int:
    """Return how many turns a worker has, waiting or running."""
    return heartbeat.running + heartbeat.waiting


def _counted(
    fleet: Fleet, before: WorkerHeartbeat | None, heartbeat: WorkerHeartbeat, now_ms: int
) -> Fleet:
    """Return the fleet with a heartbeat's turns instead of the previous heartbeat's."""
    turns = dict(fleet.turns)
    if before is not None:
        turns[before.policy] = turns.get(before.policy, 0) - turns_of(before)
    turns[heartbeat.policy] = turns.get(heartbeat.policy, 0) + turns_of(heartbeat)
    newest = 1 - exp(-max(0, now_ms - fleet.counted_ms) / MEAN_MS)
    queued = {
        policy: mean + newest * (fleet.turns.get(policy, 0) - mean)
        for policy in turns
        for mean in (fleet.queued.get(policy, 0.0),)
    }
    return replace(fleet, turns=turns, queued=queued, counted_ms=max(now_ms, fleet.counted_ms))


def _latest(fleet: Fleet, heartbeat: WorkerHeartbeat, now_ms: int) -> Fleet:
    key = (heartbeat.worker, heartbeat.process)
    before = fleet.heartbeats.get(key)
    # An incarnation's first heartbeat may be old and read late, so its own stamp counts.
    latest = LatestHeartbeat(heartbeat=heartbeat, seen_ms=min(now_ms, heartbeat.at_ms))
    if before is not None and heartbeat.incarnation == before.replaced:
        return fleet
    if before is not None and heartbeat.incarnation == before.heartbeat.incarnation:
        if heartbeat.at_ms <= before.heartbeat.at_ms:
            return fleet
        latest = replace(before, heartbeat=heartbeat, seen_ms=now_ms)
    elif before is not None:
        latest = replace(latest, replaced=before.heartbeat.incarnation)
    after = replace(fleet, heartbeats={**fleet.heartbeats, key: latest})
    if heartbeat.process != "rollout":
        return after
    return _counted(after, None if before is None else before.heartbeat, heartbeat, now_ms)
