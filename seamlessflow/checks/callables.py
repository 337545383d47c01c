"""Check of the callables and functions that settings name: a run can use each one.

They are imported in a separate process. A user's module may take long, print, end the process, or
need memory for libraries that only agents use. Seam functions are also called there, each on a
small input.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, Self

from seamlessflow.config import RunConfig
from seamlessflow.infra.faults import Fault, suggestion
from seamlessflow.infra.user_functions import is_user_function
from seamlessflow.infra.variables import SettingPath
from seamlessflow.scheduler.decisions.strategies.registry import STRATEGIES, UnknownStrategy, named
from seamlessflow.seams.seams import NamedFunction, named_functions

_TAIL_CHARS = 300


@dataclass(frozen=True)
class NamedCallable:
    """A setting's callable, with the names of the arguments that it is called with."""

    setting: SettingPath
    name: str
    arguments: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments by their names."""
    seam: tuple[str, ...] = ()
    """Seam whose contract it is tried with; empty: it is not called."""


def named_callables(config: RunConfig) -> list[NamedCallable]:
    """Return the callables and functions that a configuration names."""
    agents = config.agents
    policy = config.scheduler.policy
    named = [
        NamedCallable(("agents", "callable"), agents.callable, ("task", "session")),
        NamedCallable(("agents", "reward"), agents.reward, ("task", "result")),
    ]
    named += [
        NamedCallable(("rewards", "judges", name, "callable"), judge.callable, ("session",))
        for name, judge in config.rewards.judges.items()
    ]
    if policy not in STRATEGIES and not is_user_function(policy):
        named.append(NamedCallable(("scheduler", "policy"), policy, ("snapshot",)))
    return [*(each for each in named if each.name), *tried_callables(named_functions(config))]


def tried_callables(functions: Iterable[NamedFunction]) -> list[NamedCallable]:
    """Return seam functions as callables that are tried."""
    return [
        NamedCallable(
            function.path,
            function.name,
            function.seam.arguments,
            function.settings,
            function.seam.setting,
        )
        for function in functions
    ]


class Importing:
    """Process that imports callables while other things are checked. A context manager."""

    def __init__(self, named: Sequence[NamedCallable], limit_s: float) -> None:
        self._named = [function for function in named if ":" in function.name]
        self._unnamed = [function for function in named if ":" not in function.name]
        self._limit_s = limit_s

    def __enter__(self) -> Self:
        asked = json.dumps([asdict(function) for function in self._named])
        self._answer = tempfile.NamedTemporaryFile("r", encoding="utf-8")
        self._process = subprocess.Popen(  # nosec B603 # our own module, no shell
            [sys.executable, "-P", "-m", "seamlessflow.checks.imports", self._answer.name, asked],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._answer.close()

    def faults(self) -> Iterator[Fault]:
        """Yield what is wrong with the callables, once they are imported."""
        for function in self._unnamed:
            strategies = STRATEGIES if function.setting == ("scheduler", "policy") else ()
            choice = f"{', '.join(strategies)} or " if strategies else ""
            near = suggestion(function.name, strategies)
            yield Fault(function.setting, f"{function.name!r} is not {choice}module:function{near}")
        try:
            _, errors = self._process.communicate(timeout=self._limit_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            errors = f"not imported within {self._limit_s:g} s (start_timeout_s)"
        reasons = {int(number): reason for number, reason in map(json.loads, self._answer)}
        for number, function in enumerate(self._named):
            # A module that ends or breaks the process leaves the rest without an answer.
            reason = reasons.get(number, errors.strip()[-_TAIL_CHARS:] or "it ends the process")
            if reason:
                yield Fault(function.setting, f"{function.name!r} {reason}")
            if number not in reasons:
                break


def unnamed_strategy_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield a fault if there are settings for a strategy that is not the run's."""
    scheduler = config.scheduler
    for name in sorted(set(scheduler.functions) - {scheduler.policy}):
        text = f"has settings for {name}, but scheduler.policy is {scheduler.policy}"
        yield Fault(("scheduler", "functions"), text)


def simulation_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield a simulated run's faults: names that stand for no strategy, and explorations."""
    if config.pacing.sampler.explores:
        text = "explore cannot be simulated: the model of a run knows no explored groups"
        yield Fault(("pacing", "sampler", "name"), f"{text}; leave it out, and measure a run")
    places: list[tuple[SettingPath, str]] = [(("scheduler", "policy"), config.scheduler.policy)]
    for number, name in enumerate(config.simulation.strategies):
        places.append((("simulation", "strategies", number), name))
    for path, name in places:
        try:
            named(name, config.scheduler.functions)
        except UnknownStrategy as error:
            yield Fault(path, str(error))
