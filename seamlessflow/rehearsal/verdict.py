"""Verdict on a rehearsal: the ways in which this machine distorted it, and its nearest limit. Pure.

A rehearsal shows the software of a cluster at the speed of its devices. Where its processes wait
for a processor, or software takes a noticeable part of a step, its figures tell of this machine.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from seamlessflow.processes.launcher import BROKER
from seamlessflow.processes.usage import ProcessLoad
from seamlessflow.rehearsal.hops import Hops

MOST_SHARE = 0.05
"""Largest share of a step, as it is modelled, that waiting for a processor or software may take."""


@dataclass(frozen=True, slots=True)
class NearestLimit:
    """The process that is full first as the load grows."""

    process: str
    factor: float
    """Multiple of this load at which it is."""


def distortions(
    loads: Mapping[str, ProcessLoad], hops: Hops, turns: float, step_s: float
) -> list[str]:
    """Return why the figures cannot be trusted; empty if they can.

    `turns`: mean number of a session; `step_s`: mean optimizer step.
    """
    found = [
        f"{name} waited for a processor during {load.waited:.1%} of the time"
        for name, load in loads.items()
        if load.waited > MOST_SHARE
    ]
    share = software_share(hops, turns, step_s)
    if share > MOST_SHARE:
        found.append(
            f"software took {share:.1%} of a step: {turns:.1f} turns of a session, each "
            f"{hops.mean_ms:.0f} ms on its way to the worker and as long back"
        )
    return found


def software_share(hops: Hops, turns: float, step_s: float) -> float:
    """Return the part of a step for which a session of so many turns waits for software."""
    return 2 * turns * hops.mean_ms / 1000 / step_s if step_s else 0.0


def nearest_limit(loads: Mapping[str, ProcessLoad], processors: int) -> NearestLimit | None:
    """Return which process is full first; None without one that computes.

    The broker can fill all processors; each other one computes in one thread at a time.
    """
    factors = {
        name: (processors if name == BROKER else 1) / load.computed
        for name, load in loads.items()
        if load.computed > 0
    }
    if not factors:
        return None
    name = min(factors, key=factors.__getitem__)
    return NearestLimit(name, factors[name])
