"""Samplers and terms by name: those of the release, and functions of a user.

An error of a user's function costs one choice: tasks are drawn in shuffled order then. A hundred in
a row end the run. Called by `draws.py` and the checks of a configuration.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from seamlessflow.infra.deadline import CallsInTurn
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.user_functions import (
    OwnSettings,
    ResultMalformed,
    is_user_function,
    place_of,
    source_sha256,
    user_function,
)
from seamlessflow.scheduler.sampling.ask import Ask, TaskChoice
from seamlessflow.scheduler.sampling.samplers import (
    by_success,
    greso,
    srpo,
    target,
    trace,
    vade,
)
from seamlessflow.scheduler.sampling.settings import SamplerSection, TermsSection

SAMPLERS: Mapping[str, Callable[..., Sequence[TaskChoice]]] = {
    "vade": vade,
    "target": target,
    "greso": greso,
    "srpo": srpo,
    "trace": trace,
}
TERMS: Mapping[str, Callable[..., TaskChoice]] = {"by_success": by_success}
VERSION = 1
"""Version of the samplers of this release: another one may choose others from the same figures."""
MOST_FAILURES = 100
"""Failed choices in a row that end the run."""
LONGEST_S = 10.0
"""Time of a user's function for one choice; then it counts as failed."""
_log = logging.getLogger(__name__)


class SamplerFailed(SeamlessFlowError):
    """A function of the user's own that failed for many choices in a row."""

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
    """Hash of its file; empty for a method of the release."""
    failures: int = 0
    """Failed calls in a row."""
    _calls: CallsInTurn = field(default_factory=CallsInTurn)

    def result(self, check: Callable[[Any], Any], *asked: object) -> Any:
        """Return its checked result, or None if it failed. Raises `SamplerFailed`."""
        try:
            answer = check(self._answer(*asked))
        except (Exception, SystemExit) as error:  # a user's function may raise anything
            if not is_user_function(self.name):
                raise
            self._failed(error)
            return None
        self.failures = 0
        return answer

    def _answer(self, *asked: object) -> Any:
        if not is_user_function(self.name):
            return self.call(*asked)
        answers: list[Any] = []
        self._calls.within(LONGEST_S, lambda: answers.append(self.call(*asked)))
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
        call = partial(user_function(name).call, **functions.get(name, {}))
        return UsedMethod(setting, name, call, source_sha256(name))
    return UsedMethod(setting, name, partial(table[name], **arguments))


def checked_choices(ask: Ask, choices: object) -> Sequence[TaskChoice]:
    """Return the choices of a sampler after a check. Raises `ResultMalformed`."""
    if not isinstance(choices, Sequence) or not all(isinstance(c, TaskChoice) for c in choices):
        raise ResultMalformed(f"{choices!r:.80}", "a list of TaskChoice")
    if len(choices) > ask.count:
        raise ResultMalformed(f"{len(choices)} choices", f"at most {ask.count}")
    places = [choice.place for choice in choices]
    if twice := [place for place in places if places.count(place) > 1]:
        raise ResultMalformed(f"place {twice[0]} twice", "different tasks")
    for choice in choices:
        if not isinstance(choice.place, int) or not 0 <= choice.place < len(ask.tasks):
            raise ResultMalformed(f"place {choice.place!r:.80}", f"one below {len(ask.tasks)}")
        if not ask.is_free(choice.place):
            task_id = ask.candidate(choice.place).task_id
            raise ResultMalformed(f"task {task_id}", "one without a group under way")
        checked_choice(choice)
    return choices


def checked_choice(choice: object) -> TaskChoice:
    """Return a choice after a check of its numbers. Raises `ResultMalformed`."""
    if not isinstance(choice, TaskChoice):
        raise ResultMalformed(f"{choice!r:.80}", "a TaskChoice")
    for name, least in (("samples", 1), ("turn_limit", 0)):
        value = getattr(choice, name)
        if value is not None and not (isinstance(value, int) and least <= value < 2**31):
            raise ResultMalformed(f"{name} {value!r:.80}", f"a whole number, {least} or more")
    for name, figure in choice.figures.items():
        if not isinstance(figure, int | float) or not math.isfinite(figure):
            raise ResultMalformed(f"figure {name} {figure!r:.80}", "a finite number")
    return choice
