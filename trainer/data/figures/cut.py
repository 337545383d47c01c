"""Sessions that count although their agent failed, since a limit had cut its last answer. Pure.

They are trained with their reward, 0 without one (`agents.on_limit zero`), so an agent that cannot
bear a cut answer, or that has a mistake, would not be noticed. Called by the dataloader.
"""

from dataclasses import dataclass

from seamlessflow.schemas.records import ProgressStalled, Record, Trajectory

_LEFT_OPEN = ("idle", "too old")
"""Reasons of a manager that closed a session, since its client did not."""


def failed_at_limit(trajectory: Trajectory) -> bool:
    """Return True if the agent gave a reason for its end, and the manager made it a limit's."""
    cut = trajectory.status == "truncated" and bool(trajectory.limit)
    return cut and trajectory.reason not in ("", *_LEFT_OPEN)


@dataclass(slots=True)
class CutErrors:
    """The notice of a run about such sessions, which names the first."""

    _noticed: bool = False

    def notice(self, trajectory: Trajectory, now_ms: int) -> list[Record]:
        """Return a notice at the first such session."""
        if self._noticed or not failed_at_limit(trajectory):
            return []
        self._noticed = True
        why = trajectory.reason.splitlines()[-1]
        detail = (
            f"{trajectory.session_id} failed after a limit ({trajectory.limit}) and is trained "
            f"with its reward, 0 without one: {why} (agents.on_limit retry leaves such sessions "
            "out; the log of the agents has the whole error)"
        )
        return [ProgressStalled(at_ms=now_ms, what="agent", detail=detail, since_ms=now_ms)]
