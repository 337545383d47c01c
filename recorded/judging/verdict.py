"""Verdicts: the reward in what a judge returned, and the meaning of its failure. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from seamlessflow.producers.agents.failures import is_infrastructure_failure
from seamlessflow.producers.agents.harness.command import TRY_AGAIN, CommandFailed
from seamlessflow.producers.agents.result import (
    REWARD,
    BadResult,
    as_reward,
    result_of,
    rewards_of,
    shown,
)

_SHOWN_CHARACTERS = 300
_OF_FILES = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
"""Errors that waiting does not mend: the judge's own file or program is not there."""


@dataclass(frozen=True, slots=True)
class Rewarded:
    """A judge's reward for a session."""

    value: float
    turns: Mapping[str, float] = field(default_factory=dict)
    """Rewards by turn id, from a judge for turns; `value` is then their mean."""


@dataclass(frozen=True, slots=True)
class Unrewarded:
    """A judge's final word that a session gets no reward."""

    reason: str


@dataclass(frozen=True, slots=True)
class FailedTry:
    """A try without a reward."""

    reason: str
    outage: bool = False
    """True if something that the judge needs was away, so that the try does not count."""
    again_after_s: float | None = None
    """Time that it asked for before the next try, or None."""
    unreadable: bool = False
    """True if the judge answered, and its answer is no reward."""


JudgesWord = Rewarded | Unrewarded


def reward_in(value: object, name: str) -> float:
    """Return the reward that the judge with this name returned. Raises `BadResult`."""
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


def turns_rewarded(value: object, turns: Sequence[str]) -> Rewarded:
    """Return the rewards that a judge for turns gave these turns. Raises `BadResult`."""
    if not turns:
        raise BadResult("a session without a turn has none to judge")
    rewards = {turn: as_reward(item) for turn, item in _by_turn(value, turns).items()}
    return Rewarded(fmean(rewards.values()), rewards)


def _by_turn(value: object, turns: Sequence[str]) -> Mapping[str, object]:
    if isinstance(value, Mapping):
        named = {str(turn): item for turn, item in value.items()}
        if named.keys() == set(turns):
            return named
    text = isinstance(value, str | bytes)
    if isinstance(value, Sequence) and not text and len(value) == len(turns):
        return dict(zip(turns, value, strict=True))
    wanted = f"a judge of turns gives a reward for each of the {len(turns)} turns"
    raise BadResult(f"{wanted}, by id or in their order, not {shown(value)}")


def failed_try(error: BaseException) -> FailedTry:
    """Return the failure that a judge's exception means."""
    absent = isinstance(error, _OF_FILES)
    away = (isinstance(error, OSError) and not absent) or is_infrastructure_failure(error)
    if isinstance(error, CommandFailed):
        away = error.exit_status == TRY_AGAIN
    kind = "" if isinstance(error, BadResult | CommandFailed) else f"{type(error).__name__}: "
    reason = f"{kind}{error}"[:_SHOWN_CHARACTERS]
    return FailedTry(reason, away, _asked_pause(error), isinstance(error, BadResult))


def _asked_pause(error: BaseException) -> float | None:
    """Return the seconds that a server asked for, as found in HTTP clients' errors, or None."""
    asked = getattr(error, "again_after_s", None)
    if isinstance(asked, float):
        return asked
    headers = getattr(getattr(error, "response", None), "headers", None)
    text = str(headers.get("retry-after", "")) if isinstance(headers, Mapping) else ""
    return float(text) if text.isascii() and text.isdigit() else None
