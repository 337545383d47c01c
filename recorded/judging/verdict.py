"""Verdicts: the reward in what a judge returned, and what its failure means. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from seamlessflow.producers.agents.failures import is_infrastructure_failure
from seamlessflow.producers.agents.harness.command import TRY_AGAIN, CommandFailed
from seamlessflow.producers.agents.result import REWARD, BadResult, result_of, rewards_of, shown

_SHOWN_CHARACTERS = 300
_OF_FILES = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
"""Errors that no wait mends: the judge's own file or program is not there."""


@dataclass(frozen=True, slots=True)
class Rewarded:
    """A judge's reward of a session."""

    value: float


@dataclass(frozen=True, slots=True)
class Unrewarded:
    """A judge's last word that it gives a session no reward."""

    reason: str


@dataclass(frozen=True, slots=True)
class FailedTry:
    """A try without a reward."""

    reason: str
    outage: bool = False
    """True if what the judge needs was away, so that the try does not count."""
    again_after_s: float | None = None
    """Time that it asked for before the next try, or None."""


JudgesWord = Rewarded | Unrewarded


def reward_in(value: object, name: str) -> float:
    """Return the reward that the judge of this name returned. Raises `BadResult`."""
    try:
        rewards = rewards_of(result_of(value))
    except BadResult as error:
        raise BadResult(f"{error}; it returned {shown(value)}") from None
    if len(rewards) != 1:
        raise BadResult(f"a judge gives one reward, not {len(rewards)}: {shown(value)}")
    (reward,) = rewards
    if reward.response_id is not None or reward.name not in (REWARD, name):
        raise BadResult(f"the judge {name} gives the session its reward, not {shown(value)}")
    return reward.value


def failed_try(error: BaseException) -> FailedTry:
    """Return what an exception of a judge means."""
    absent = isinstance(error, _OF_FILES)
    away = (isinstance(error, OSError) and not absent) or is_infrastructure_failure(error)
    if isinstance(error, CommandFailed):
        away = error.exit_status == TRY_AGAIN
    kind = "" if isinstance(error, BadResult | CommandFailed) else f"{type(error).__name__}: "
    return FailedTry(f"{kind}{error}"[:_SHOWN_CHARACTERS], away, _asked_pause(error))


def _asked_pause(error: BaseException) -> float | None:
    """Return the seconds that a server asked for, as clients of HTTP have them in their errors."""
    asked = getattr(error, "again_after_s", None)
    if isinstance(asked, float):
        return asked
    headers = getattr(getattr(error, "response", None), "headers", None)
    text = str(headers.get("retry-after", "")) if isinstance(headers, Mapping) else ""
    return float(text) if text.isascii() and text.isdigit() else None
