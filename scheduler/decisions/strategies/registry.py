"""The strategies by name: pure functions from a snapshot to the role that each worker should have.

Called by `scheduler/controller.py`, the simulator and the checks of a configuration.
"""

from collections.abc import Mapping
from importlib import import_module

from infra.errors import SeamlessFlowError
from scheduler.decisions.strategies.adaptive import adaptive
from scheduler.decisions.strategies.bidirectional import bidirectional
from scheduler.decisions.strategies.colocated import colocated
from scheduler.decisions.strategies.disaggregated import disaggregated
from scheduler.decisions.strategies.multiplexed import multiplexed
from scheduler.decisions.strategies.wanted import Strategy

STRATEGIES: Mapping[str, Strategy] = {
    "colocated": colocated,
    "disaggregated": disaggregated,
    "multiplexed": multiplexed,
    "bidirectional": bidirectional,
    "adaptive": adaptive,
}


class UnknownStrategy(SeamlessFlowError):
    """No strategy has this name."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(
            f"no strategy {name!r} ({', '.join(STRATEGIES)}, module:function): {reason}"
        )


def named(name: str) -> Strategy:
    """Return the strategy of that name, or the function of a name `module:function`.

    Raises `UnknownStrategy`.
    """
    if name in STRATEGIES:
        return STRATEGIES[name]
    module, _, function = name.partition(":")
    try:
        found = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise UnknownStrategy(name, str(error)) from error
    if not callable(found):
        raise UnknownStrategy(name, "not callable")
    strategy: Strategy = found
    return strategy
