"""Verdict on a rehearsal: the ways in which this machine distorted it, and its nearest limit. Pure.

A rehearsal shows a cluster's software at its devices' speed. If processes wait for a processor, or
software takes a noticeable part of a step, the figures describe this machine instead.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seamlessflow.processes.launcher import BROKER
from seamlessflow.processes.usage import ProcessLoad
from seamlessflow.rehearsal.software import SoftwareTime
from seamlessflow.trainer.metrics.unlearned import EQUAL_REWARDS

MOST_SHARE = 0.05
"""Largest share that waiting for a processor, or software, may take in a modelled step."""


@dataclass(frozen=True, slots=True)
class NearestLimit:
    """The process that is full first as the load grows."""

    process: str
    factor: float
    """Multiple of this load at which it is full."""


def modelled_step_s(summary: Mapping[str, Any]) -> float:
    """Return the ideal step from a run's `summary.json`, in seconds; 0 if it made none.

    The ideal step there lasts from any policy's step to the next, of any policy. Software holds up
    each policy's steps separately. So this returns the ideal step of the policy with the most
    steps, which is longer.
    """
    ideal_s = max(summary["ideal_step_s"].values(), default=0.0)
    steps = [policy["steps"] for policy in summary.get("policies", {}).values()]
    return ideal_s * summary["steps"] / max(steps) if any(steps) else ideal_s


def distortions(loads: Mapping[str, ProcessLoad], software: SoftwareTime) -> list[str]:
    """Return why the figures cannot be trusted; empty if they can."""
    texts = [
        f"{name} waited for a processor during {load.waited:.1%} of the time"
        for name, load in loads.items()
        if load.waited > MOST_SHARE
    ]
    if software.share > MOST_SHARE:
        texts.append(
            f"software took {software.share:.1%} of a modelled step of {software.step_s:.2f} s: "
            f"{software.turns:.1f} turns of a session, each {software.hops.mean_ms:.0f} ms on its "
            f"way to the worker and as long back, and {software.delay_ms:.0f} ms from a batch's "
            "last group to the start of its step, without changes of role"
        )
    return texts


def untrained(summary: Mapping[str, Any]) -> str | None:
    """Return a notice about groups left untrained for equal rewards, from `summary.json`.

    Modelled devices' texts seldom earn rewards. None if the groups are too few to matter.
    """
    share = summary["groups_left_out"].get(EQUAL_REWARDS, 0.0)
    if share <= MOST_SHARE:
        return None
    return (
        f"{share:.0%} of the groups had equal rewards and were left out of the loss "
        f"({EQUAL_REWARDS}): the time of their training is missing in these figures. Set "
        "trainer.filters to {untrainable: drop} for the rehearsal, or let the agent draw its "
        "rewards"
    )


def nearest_limit(loads: Mapping[str, ProcessLoad], processors: int) -> NearestLimit | None:
    """Return which process is full first; None if no process computes.

    The broker can fill all processors; each other process computes in one thread at a time.
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
