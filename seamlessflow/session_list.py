"""Finalized sessions as a table for people. Pure.

A session's id is never cut: it is what `show SESSION` wants.
"""

from collections.abc import Sequence

from rich.table import Column, Table

from schemas.records import Trajectory

_OTHERS = ("task", "status", "reward", "turns", "tokens", "trainable", "versions", "matched")


def session_list(trajectories: Sequence[Trajectory]) -> Table:
    """A row a session."""
    table = Table(Column("session", no_wrap=True, min_width=_widest(trajectories)), *_OTHERS)
    for found in trajectories:
        rewards = ", ".join(f"{reward.value:g}" for reward in found.rewards)
        table.add_row(
            found.session_id,
            found.task_id,
            found.status,
            rewards,
            str(found.turns),
            f"{len(found.loss_mask)}",
            f"{sum(found.loss_mask)}",
            _versions(found),
            ", ".join(f"{rule} {count}" for rule, count in sorted(found.match_rules.items())),
        )
    return table


def _widest(trajectories: Sequence[Trajectory]) -> int:
    return max((len(found.session_id) for found in trajectories), default=0)


def _versions(found: Trajectory) -> str:
    if found.version_min == found.version_max:
        return "-" if found.version_min is None else str(found.version_min)
    return f"{found.version_min}-{found.version_max}"
