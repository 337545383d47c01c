"""List of finalized sessions for the terminal. Pure."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from seamlessflow.schemas.records import Reward, Trajectory

_WIDEST_STATUS = len("unrewarded")


def list_view(trajectories: Sequence[Trajectory]) -> Table:
    """Return a row for each session. Ids are never cut: they are arguments of `show SESSION`."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    widest = max((len(trajectory.session_id) for trajectory in trajectories), default=0)
    table.add_column("session", no_wrap=True, min_width=widest)
    table.add_column("task", no_wrap=True)
    table.add_column("status", no_wrap=True, min_width=_WIDEST_STATUS)
    for name in ("reward", "turns", "tokens", "trainable", "versions"):
        table.add_column(name, justify="right", no_wrap=True)
    for trajectory in trajectories:
        table.add_row(
            trajectory.session_id,
            trajectory.task_id,
            trajectory.status,
            ", ".join(map(_reward, trajectory.rewards)),
            str(trajectory.turns),
            str(len(trajectory.loss_mask)),
            str(sum(trajectory.loss_mask)),
            _versions(trajectory),
        )
    return table


def _reward(reward: Reward) -> str:
    return f"{reward.value:g}" if reward.name == "reward" else f"{reward.name} {reward.value:g}"


def _versions(trajectory: Trajectory) -> str:
    if trajectory.version_min == trajectory.version_max:
        return "-" if trajectory.version_min is None else str(trajectory.version_min)
    return f"{trajectory.version_min}-{trajectory.version_max}"
