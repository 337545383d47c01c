"""List of finalized sessions for the terminal. Pure."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from seamlessflow.schemas.records import Reward, Trajectory

_WIDEST_STATUS = len("unrewarded")


def list_view(trajectories: Sequence[Trajectory]) -> Table:
    """Return a row for each session. Ids are never cut: they are arguments of `show SESSION`."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    widest = max((len(found.session_id) for found in trajectories), default=0)
    table.add_column("session", no_wrap=True, min_width=widest)
    table.add_column("task", no_wrap=True)
    table.add_column("status", no_wrap=True, min_width=_WIDEST_STATUS)
    for name in ("reward", "turns", "tokens", "trainable", "versions"):
        table.add_column(name, justify="right", no_wrap=True)
    for found in trajectories:
        table.add_row(
            found.session_id,
            found.task_id,
            found.status,
            ", ".join(map(_reward, found.rewards)),
            str(found.turns),
            str(len(found.loss_mask)),
            str(sum(found.loss_mask)),
            _versions(found),
        )
    return table


def _reward(of: Reward) -> str:
    return f"{of.value:g}" if of.name == "reward" else f"{of.name} {of.value:g}"


def _versions(found: Trajectory) -> str:
    if found.version_min == found.version_max:
        return "-" if found.version_min is None else str(found.version_min)
    return f"{found.version_min}-{found.version_max}"
