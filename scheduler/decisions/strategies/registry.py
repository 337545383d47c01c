"""The strategies by name: the built-in ones, and a user's functions.

`scheduler/bootstrap.py`, the simulator and a configuration's checks call it.
"""

import reprlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from pathlib import Path
from traceback import extract_tb
from types import MappingProxyType

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.faults import suggestion
from seamlessflow.infra.user_functions import (
    FunctionUnusable,
    OwnSettings,
    ResultMalformed,
    is_user_function,
    user_function,
)
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
    """Error: a strategy raised an error in a run, or did not return a list of `Wanted`."""

    lasting = True

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(f"scheduler.policy: strategy {name} {reason}")


def named(name: str, settings: OwnSettings = MappingProxyType({})) -> Strategy:
    """Return the strategy with that name, or a user's function with its own settings.

    Raises `UnknownStrategy`; the returned function raises `StrategyFailed`.
    """
    if name in STRATEGIES:
        return STRATEGIES[name]
    if not is_user_function(name):
        raise UnknownStrategy(name, suggestion(name, STRATEGIES))
    try:
        strategy = user_function(name).call
    except FunctionUnusable as error:
        raise UnknownStrategy(name, f": it {error.reason}") from error
    return _tried(name, partial(strategy, **settings.get(name, {})))


def try_strategy(strategy: Callable[..., object]) -> Sequence[Wanted]:
    """Call a function for the seam `scheduler.policy` on a small snapshot.

    Raises the function's errors, and `ResultMalformed`.
    """
    return _checked(strategy(Snapshot(now_ms=0, workers=(WorkerView("w0", BOTH, BOTH),))))


def _tried(name: str, strategy: Callable[[Snapshot], object]) -> Strategy:
    """Return a function that gives wanted roles for a snapshot. Raises `UnknownStrategy`."""
    named_in_errors = _naming(name, strategy)
    try:
        try_strategy(named_in_errors)
    except StrategyFailed as error:
        raise UnknownStrategy(name, f": of a snapshot it {error.reason}") from error
    return named_in_errors


def _naming(name: str, strategy: Callable[[Snapshot], object]) -> Strategy:
    """Return the strategy with its name in every error. It raises `StrategyFailed`."""

    @wraps(strategy)
    def wanted(seen: Snapshot) -> Sequence[Wanted]:
        try:
            return _checked(strategy(seen))
        except ResultMalformed as error:
            fault = f"returned {error.returned}, not {error.expected}"
            raise StrategyFailed(name, fault) from error
        except (Exception, SystemExit) as error:  # a user's function may raise anything
            # The first place is the call above.
            *_, last = [None, *extract_tb(error.__traceback__)[1:]]
            where = f" ({Path(last.filename).name}, line {last.lineno})" if last else ""
            raise StrategyFailed(name, f"raised {error!r}{where}") from error

    return wanted


def _checked(roles: object) -> Sequence[Wanted]:
    if not isinstance(roles, Sequence) or not all(isinstance(want, Wanted) for want in roles):
        raise ResultMalformed(reprlib.repr(roles), "a list of Wanted")
    return roles
