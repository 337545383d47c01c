"""Finalized sessions as a table for people. Pure."""

from collections.abc import Sequence

from rich.table import Table

from schemas.records import Trajectory


def session_list(trajectories: Sequence[Trajectory]) -> Table:
    """A row a session."""
    table = Table("session", "task", "status", "reward", "turns", "tokens", "versions", "matched")
    for found in trajectories:
        rewards = ", ".join(f"{reward.value:g}" for reward in found.rewards)
        table.add_row(
            found.session_id,
            found.task_id,
            found.status,
            rewards,
            str(found.turns),
            f"{len(found.loss_mask)} ({sum(found.loss_mask)} trainable)",
            _versions(found),
            ", ".join(f"{rule} {count}" for rule, count in sorted(found.match_rules.items())),
        )
    return table


def _versions(found: Trajectory) -> str:
    if found.version_min == found.version_max:
        return "-" if found.version_min is None else str(found.version_min)
    return f"{found.version_min}-{found.version_max}"
