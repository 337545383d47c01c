"""The strategies by name: the built-in ones, and functions of a user.

Called by `scheduler/bootstrap.py`, the simulator and the checks of a configuration.
"""

import reprlib
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from traceback import extract_tb

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.faults import suggestion
from seamlessflow.infra.user_modules import hidden_by, import_from_here
from seamlessflow.scheduler.decisions.snapshot import Snapshot, WorkerView
from seamlessflow.scheduler.decisions.strategies.built_in import (
    adaptive,
    bidirectional,
    colocated,
    disaggregated,
    multiplexed,
)
from seamlessflow.scheduler.decisions.strategies.wanted import BOTH, Strategy, Wanted

STRATEGIES: Mapping[str, Strategy] = {
    "colocated": colocated,
    "disaggregated": disaggregated,
    "multiplexed": multiplexed,
    "bidirectional": bidirectional,
    "adaptive": adaptive,
}


class UnknownStrategy(SeamlessFlowError):
    """No strategy has this name."""

    lasting = True

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(f"no strategy {name!r} ({', '.join(STRATEGIES)}, module:function){reason}")


class StrategyFailed(SeamlessFlowError):
    """A strategy that raised an error in a run, or did not return a list of `Wanted`."""

    lasting = True

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(f"scheduler.policy: strategy {name} {reason}")


def named(name: str) -> Strategy:
    """Return the strategy of that name, or the function of a name `module:function`.

    The module may be in the working directory, as an agent's may. Raises `UnknownStrategy`; the
    returned function raises `StrategyFailed`.
    """
    if name in STRATEGIES:
        return STRATEGIES[name]
    module, _, function = name.partition(":")
    if not module or not function:
        raise UnknownStrategy(name, suggestion(name, STRATEGIES))
    try:
        imported = import_from_here(module)
    except (Exception, SystemExit) as error:  # a user's module may raise anything
        raise UnknownStrategy(name, f": while importing {module}: {error!r}") from error
    strategy = getattr(imported, function, None)
    if strategy is None:
        raise UnknownStrategy(name, f": {module} has no {function}{hidden_by(imported)}")
    if not callable(strategy):
        raise UnknownStrategy(name, ": not callable")
    return _tried(name, strategy)


def _tried(name: str, strategy: Callable[[Snapshot], object]) -> Strategy:
    """Return a function that gives wanted roles for a snapshot. Raises `UnknownStrategy`."""
    checked = _checked(name, strategy)
    try:
        checked(Snapshot(now_ms=0, workers=(WorkerView("w0", BOTH, BOTH),)))
    except StrategyFailed as error:
        raise UnknownStrategy(name, f": of a snapshot it {error.reason}") from error
    return checked


def _checked(name: str, strategy: Callable[[Snapshot], object]) -> Strategy:
    """Return the strategy with its name in every error. It raises `StrategyFailed`."""

    @wraps(strategy)
    def wanted(seen: Snapshot) -> Sequence[Wanted]:
        try:
            roles = strategy(seen)
        except (Exception, SystemExit) as error:  # a user's function may raise anything
            # The first place is the call above.
            *_, last = [None, *extract_tb(error.__traceback__)[1:]]
            where = f" ({Path(last.filename).name}, line {last.lineno})" if last else ""
            raise StrategyFailed(name, f"raised {error!r}{where}") from error
        if not isinstance(roles, Sequence) or not all(isinstance(want, Wanted) for want in roles):
            fault = f"returned {reprlib.repr(roles)}, not a list of Wanted"
            raise StrategyFailed(name, fault)
        return roles

    return wanted
