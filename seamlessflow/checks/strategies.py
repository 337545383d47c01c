"""Check of the strategies that settings name, for commands that simulate them."""

from collections.abc import Iterator

from seamlessflow.config import RunConfig
from seamlessflow.infra.faults import Fault, SettingPath
from seamlessflow.scheduler.decisions.strategies.registry import UnknownStrategy, named


def strategy_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield a fault for each name that stands for no strategy."""
    places: list[tuple[SettingPath, str]] = [(("scheduler", "policy"), config.scheduler.policy)]
    for number, name in enumerate(config.simulation.strategies):
        places.append((("simulation", "strategies", number), name))
    for path, name in places:
        try:
            named(name)
        except UnknownStrategy as error:
            yield Fault(path, str(error))
