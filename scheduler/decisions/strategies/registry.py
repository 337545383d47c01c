"""The strategies by name: pure functions from a snapshot to the role that each worker should have.

Called by `scheduler/controller.py`, the simulator and the checks of a configuration.
"""

import reprlib
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

from infra.errors import SeamlessFlowError
from infra.faults import suggestion
from scheduler.decisions.snapshot import Snapshot, WorkerView
from scheduler.decisions.strategies.adaptive import adaptive
from scheduler.decisions.strategies.bidirectional import bidirectional
from scheduler.decisions.strategies.colocated import colocated
from scheduler.decisions.strategies.disaggregated import disaggregated
from scheduler.decisions.strategies.multiplexed import multiplexed
from scheduler.decisions.strategies.wanted import BOTH, Strategy, Wanted

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
        super().__init__(f"no strategy {name!r} ({', '.join(STRATEGIES)}, module:function){reason}")


def named(name: str) -> Strategy:
    """Return the strategy of that name, or the function of a name `module:function`.

    Its module may be in the working directory, as an agent's. Raises `UnknownStrategy`.
    """
    if name in STRATEGIES:
        return STRATEGIES[name]
    module, _, function = name.partition(":")
    if not module or not function:
        raise UnknownStrategy(name, suggestion(name, STRATEGIES))
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(import_module(module), function)
    except Exception as error:  # a user's module may raise anything
        raise UnknownStrategy(name, f": {error}") from error
    if not callable(found):
        raise UnknownStrategy(name, ": not callable")
    return _tried(name, found)


def _tried(name: str, strategy: Strategy) -> Strategy:
    """Return a function that gives wanted roles for a snapshot. Raises `UnknownStrategy`."""
    seen = Snapshot(now_ms=0, workers=(WorkerView("w0", BOTH, BOTH),))
    try:
        wanted = strategy(seen)
    except Exception as error:
        raise UnknownStrategy(name, f": of a snapshot it raised {error!r}") from error
    if not isinstance(wanted, Sequence) or not all(isinstance(one, Wanted) for one in wanted):
        raise UnknownStrategy(
            name, f": of a snapshot it returned {reprlib.repr(wanted)}, not a list of Wanted"
        )
    return strategy
