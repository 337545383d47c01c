"""The ideal step: the shortest time of an optimizer step for its work and its groups. Pure."""

from dataclasses import dataclass

from seamlessflow.scheduler.state.accounts.device_time import UNDER_FILLED, WAITING, DeviceTime


@dataclass(frozen=True, slots=True)
class IdealStep:
    """Two times that no step of a run can be shorter than, in milliseconds."""

    work_ms: float
    """(R + T + switches + loads + recomputed KV) / G."""
    latency_ms: float
    """A group's latency / (lag + 1): at most lag + 1 batches of groups run at once, and the extra
    ones, which count as parts of a step of lag.
    """

    @property
    def ms(self) -> float:
        """Return the longer of the two."""
        return max(self.work_ms, self.latency_ms)


def ideal_step(
    spent: DeviceTime, steps: int, devices: float, group_ms: float, lag: float
) -> IdealStep:
    """Return the ideal step where `spent` is the device time of so many steps (1 or more).

    `devices` is G. `group_ms`: the time from a group's admission until it is ready.
    """
    needed = spent.total - spent.of(UNDER_FILLED, WAITING)
    return IdealStep(needed / steps / devices, latency_limit(group_ms, lag))


def latency_limit(group: float, lag: float) -> float:
    """Return the least time of a step whose groups take so long, in the same unit."""
    return group / (lag + 1)
