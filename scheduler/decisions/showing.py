"""The past version that a frozen policy shows to agents: when and how it changes. Pure.

Without opponents it is the newest past version. If groups play against opponents (the terms
`league`), it is the running groups' opponent, or else the last groups' opponent. So no task is
issued before workers serve that version, and all running groups have the same opponent. Called by
`scheduler/decisions/decide.py`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from seamlessflow.scheduler.state.fleet import Fleet
from seamlessflow.scheduler.state.ledger import AdmittedGroup, Ledger
from seamlessflow.scheduler.state.past import NO_VERSION, PastVersion, ShownVersions
from seamlessflow.scheduler.state.state import State
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import CONTROL, FLEET


def changes(
    state: State, ledger: Ledger, fleet: Fleet, now_ms: int
) -> Iterator[tuple[str, Record]]:
    """Yield topic and record for each version that must be shown now and is not."""
    for name, shown in state.shown.items():
        version = wanted(shown, ledger)
        weights = fleet.weights.get(shown.policy)
        if version is None or weights is None:
            continue
        number = shown.number
        if version.version != shown.version:
            number = number + 1
            yield CONTROL.name, _announcement(name, number, version, now_ms)
        loaded = fleet.weights.get(name)
        # Also if an earlier scheduler died between the two records.
        if loaded is None or loaded.version != number:
            yield FLEET.name, _to_load(name, number, version, weights, now_ms)


def wanted(shown: ShownVersions, ledger: Ledger) -> PastVersion | None:
    """Return the version to show, or None if there is none yet."""
    opponent = running_opponent(ledger.groups)
    if opponent == NO_VERSION:
        opponent = ledger.opponent
    if opponent != NO_VERSION:
        return shown.find(opponent)
    return shown.past[max(shown.past)] if shown.past else None


def running_opponent(groups: Mapping[str, AdmittedGroup]) -> int:
    """Return the past version that the groups under way play against, or `NO_VERSION`."""
    opponents = [group.opponent for group in groups.values() if not group.ready]
    return max(opponents, default=NO_VERSION)


def is_served(state: State, ledger: Ledger) -> bool:
    """Return whether the running groups' opponent is served, or they have no opponent."""
    opponent = running_opponent(ledger.groups)
    if opponent == NO_VERSION:
        return True
    return all(shown.is_served and shown.version == opponent for shown in state.shown.values())


def same_opponent(ledger: Ledger, opponents: Sequence[int]) -> int:
    """Return how many of the next groups may be admitted.

    They must play against the running groups' opponent. If no group runs, the first group sets it.
    """
    running = running_opponent(ledger.groups)
    for number, opponent in enumerate(opponents):
        allowed = opponents[0] if running == NO_VERSION else running
        if opponent not in (allowed, NO_VERSION):
            return number
    return len(opponents)


def _announcement(name: str, number: int, version: PastVersion, now_ms: int) -> r.WeightsPublished:
    return r.WeightsPublished(
        at_ms=now_ms,
        policy=name,
        version=number,
        step=version.step,
        lineage=version.lineage,
        kind=version.kind,
        directory=version.directory,
        manifest_sha256=version.manifest_sha256,
        tensors_hash=version.tensors_hash,
    )


def _to_load(
    name: str, number: int, version: PastVersion, weights: r.PolicyWeights, now_ms: int
) -> r.PolicyWeights:
    """Return the record that makes workers load a version, rendered like its policy's `weights`."""
    return replace(
        weights,
        policy=name,
        version=number,
        step=version.step,
        directory=version.directory,
        manifest_sha256=version.manifest_sha256,
        at_ms=now_ms,
        frozen=True,
    )
