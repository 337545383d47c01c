"""Samplers and terms by name: the release's own, and a user's functions.

If a user's function fails, it costs one choice: tasks are then drawn in shuffled order. A hundred
failures in a row end the run. Called by `draws.py` and a configuration's checks.
"""

import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from seamlessflow.infra.clock import CallsInTurn
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.user_functions import (
    OwnSettings,
    UserFunction,
    is_user_function,
    place_of,
    user_function,
)
from seamlessflow.scheduler.sampling.ask import TaskChoice
from seamlessflow.scheduler.sampling.forks import LIVE, fork_choices
from seamlessflow.scheduler.sampling.league import league
from seamlessflow.scheduler.sampling.samplers import (
    by_success,
    explore,
    greso,
    srpo,
    target,
    trace,
    vade,
)
from seamlessflow.scheduler.sampling.settings import LiveForks, SamplerSection, TermsSection

SAMPLERS: Mapping[str, Callable[..., Sequence[TaskChoice]]] = {
    "vade": vade,
    "target": target,
    "greso": greso,
    "srpo": srpo,
    "trace": trace,
    "explore": explore,
}
TERMS: Mapping[str, Callable[..., TaskChoice]] = {"by_success": by_success, "league": league}
VERSION = 1
"""Version of this release's samplers: another may choose differently from the same figures."""
MOST_FAILURES = 100
"""Number of failed choices in a row that ends the run."""
HEAVY = frozenset({"torch", "transformers", "vllm", "tensorflow", "jax"})
"""Libraries that take seconds to import."""
LONGEST_S = 10.0
"""Default for `UsedMethod.limit_s`."""
_log = logging.getLogger(__name__)


class SamplerFailed(SeamlessFlowError):
    """Error: a user's function failed for many choices in a row."""

    lasting = True

    def __init__(self, setting: str, name: str, reason: str) -> None:
        self.setting = setting
        self.name = name
        self.reason = reason
        super().__init__(f"{setting}: {name} failed {MOST_FAILURES} times in a row: {reason}")


@dataclass(eq=False)
class UsedMethod:
    """A sampler or terms, as a run uses it."""

    setting: str
    name: str
    call: Callable[..., Any]
    sha256: str = ""
    """Hash of a user's file; empty for a method that comes with the release."""
    failures: int = 0
    """Failed calls in a row."""
    limit_s: float = LONGEST_S
    """Time that a user's function has for one choice; after it, the choice counts as failed."""
    _calls: CallsInTurn = field(default_factory=CallsInTurn)

    def result(self, check: Callable[[Any], Any], *asked: object) -> Any:
        """Return its checked result, or None if it failed. Raises `SamplerFailed`."""
        try:
            answer = check(self._answer(*asked))
        except (Exception, SystemExit) as error:  # a user's function may raise anything
            if not self.sha256:
                raise
            self._failed(error)
            return None
        self.failures = 0
        return answer

    def _answer(self, *asked: object) -> Any:
        if not self.sha256:
            return self.call(*asked)
        answers: list[Any] = []
        self._calls.within(self.limit_s, lambda: answers.append(self.call(*asked)))
        return answers[0]

    def _failed(self, error: BaseException) -> None:
        self.failures += 1
        reason = f"{place_of(error)}{type(error).__name__}: {error}"
        if self.failures >= MOST_FAILURES:
            raise SamplerFailed(self.setting, self.name, reason) from error
        _log.warning(
            "%s: %s failed, so this choice goes on without it (%d in a row; %d end the run): %s",
            self.setting,
            self.name,
            self.failures,
            MOST_FAILURES,
            reason,
        )


def used_sampler(section: SamplerSection, functions: OwnSettings) -> UsedMethod | None:
    """Return the sampler that the settings name, or None. Raises `FunctionUnusable`."""
    return _used("pacing.sampler", SAMPLERS, section.name, section.arguments, functions)


def used_terms(section: TermsSection, functions: OwnSettings) -> UsedMethod | None:
    """Return the terms that the settings name, or None. Raises `FunctionUnusable`."""
    return _used("pacing.terms", TERMS, section.name, section.arguments, functions)


def used_forks(live: LiveForks, functions: OwnSettings) -> UsedMethod | None:
    """Return the chooser for places to go on from, or None. Raises `FunctionUnusable`."""
    if not live.share:
        return None
    arguments = {"predict": live.predict}
    return _used("pacing.forks_live", {LIVE: fork_choices}, LIVE, arguments, functions)


def _used(
    setting: str,
    table: Mapping[str, Callable[..., Any]],
    name: str | None,
    arguments: Mapping[str, Any],
    functions: OwnSettings,
) -> UsedMethod | None:
    if name is None:
        return None
    if is_user_function(name):
        function = _imported(setting, name)
        return UsedMethod(
            setting, name, partial(function.call, **functions.get(name, {})), function.sha256
        )
    predict = arguments.get("predict")
    if predict is None:
        return UsedMethod(setting, name, partial(table[name], **arguments))
    function = _imported(setting, predict)
    estimate = partial(function.call, **functions.get(predict, {}))
    call = partial(table[name], **{**arguments, "predict": estimate})
    return UsedMethod(setting, name, call, function.sha256)


def _imported(setting: str, name: str) -> UserFunction:
    with heavy_imports_named(setting, name):
        return user_function(name)


@contextmanager
def heavy_imports_named(setting: str, name: str) -> Iterator[None]:
    """Warn about heavy libraries imported in the block; the scheduler's start waits for them."""
    before = set(sys.modules)
    began = time.monotonic()
    yield
    lasted_s = time.monotonic() - began
    if heavy := sorted(HEAVY & (set(sys.modules) - before)):
        text = "%s: %s imports %s, and the scheduler waited %.1f s for it"
        _log.warning(text, setting, name, ", ".join(heavy), lasted_s)
