"""Check of the option `--strategy`."""

from collections.abc import Iterable

import typer


def check_strategies(names: Iterable[str]) -> None:
    """Refuse a name that stands for no strategy, before anything is read."""
    from seamlessflow.scheduler.decisions.strategies.registry import UnknownStrategy, named

    for name in names:
        try:
            named(name)
        except UnknownStrategy as error:
            raise typer.BadParameter(str(error), param_hint="--strategy") from error
