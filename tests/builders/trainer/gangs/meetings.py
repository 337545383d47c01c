"""Meetings of a gang's ranks on this machine."""

from seamlessflow.infra.network.addresses import HOST
from seamlessflow.infra.network.line import Line
from seamlessflow.trainer.backends.meeting import Coming, GangFacts, Meeting, came

FACTS: GangFacts = {"run.policy": "main"}


def meeting() -> Meeting:
    """Return a meeting of ranks with `FACTS`, or of rank 0 alone."""
    return Meeting(HOST, FACTS)


def coming(rank: int, devices: int = 1, facts: GangFacts = FACTS) -> Coming:
    """Return what a rank says when it comes."""
    return Coming(worker=f"w{rank}", rank=rank, devices=devices, facts=facts)


def line(place: str, rank: int, devices: int = 1) -> Line:
    """Return the line of a rank that is admitted."""
    return came(place, coming(rank, devices))
