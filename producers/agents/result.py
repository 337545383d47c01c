"""An agent's result, with its judge's verdict: the rewards by name and source. Pure.

`harness/session.py` has its form; `gateway_client/ending.py` decides what the rewards mean for the
session.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from numbers import Complex, Real
from typing import SupportsFloat, cast

REWARD = "reward"
"""Name of a reward that is given without a name."""

AGENT = "agent"
JUDGE = "verifier"
"""Sources of rewards that name no source: the agent's and its judge's."""

LAST_LINE = "last_line"
"""Member for a program's last line if that line is no result."""
_SHOWN_CHARACTERS = 80

Result = Mapping[str, object]


class BadResult(ValueError):
    """An agent or a judge returned a value that is not a valid result."""


@dataclass(frozen=True)
class RewardCall:
    """One reward to assign; `response_id` names the judged turn, None stands for the session.

    `final` marks a session's last reward: with it the session has all that it needs.
    """

    name: str
    value: float
    response_id: str | None
    final: bool
    source: str = AGENT


def result_of(value: object) -> Result:
    """Return an agent's return value as a mapping. Raises `BadResult`."""
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return {str(name): item for name, item in value.items()}
    if _is_number(value):
        return {REWARD: as_reward(value)}
    raise BadResult(f"an agent returns a number, a mapping or None, not {type(value).__name__}")


def judged(result: Result, verdict: object) -> Result:
    """Return the result, where the judge's rewards replace the agent's with the same names.

    `verdict`: a number, or a mapping with rewards like an agent's. Raises `BadResult`.
    """
    judgements = rewards_of(result_of(verdict), JUDGE)
    if not judgements:
        raise BadResult(f"a judge returns a number or a mapping with rewards, not {shown(verdict)}")
    rewards = {
        (reward.response_id, reward.name): reward
        for reward in (*rewards_of(result, AGENT), *judgements)
    }
    named: dict[str, object] = {}
    of_turns: dict[str, dict[str, object]] = {}
    for reward in rewards.values():
        place = named if reward.response_id is None else of_turns.setdefault(reward.response_id, {})
        place[reward.name] = {"value": reward.value, "source": reward.source}
    return {**result, REWARD: None, "rewards": named, "turn_rewards": of_turns}


def rewards_of(result: Result, source: str = AGENT) -> list[RewardCall]:
    """Return a result's rewards, those of turns first and `reward` last; none is final.

    `source`: for rewards that name no source. Raises `BadResult`.
    """
    rewards = list(_of_turns(result, source))
    for name, item in _members(result.get("rewards") or {}, "rewards"):
        rewards.append(_reward(name, item, None, source))
    if result.get(REWARD) is not None:
        rewards.append(_reward(REWARD, result[REWARD], None, source))
    return rewards


def as_reward(value: object) -> float:
    """Return a reward as a finite float. Raises `BadResult`.

    Scalars from numpy, torch and similar libraries are numbers, with or without an array around.
    """
    try:
        number = float(cast(SupportsFloat, value)) if _is_number(value) else math.nan
    except Exception:  # such as an int beyond floats: `float` decides
        number = math.nan
    if not math.isfinite(number):
        raise BadResult(f"a reward is a finite number, not {shown(value)}")
    return number


def _is_number(value: object) -> bool:
    """Return True for a real number and an array without dimensions."""
    if isinstance(value, str | bytes) or (
        isinstance(value, Complex) and not isinstance(value, Real)
    ):
        return False  # numpy's strings and complex numbers also have `__float__`
    return hasattr(type(value), "__float__") and getattr(value, "ndim", 0) == 0


def shown(value: object) -> str:
    """Return the beginning of a value as Python prints it."""
    try:
        return repr(value)[:_SHOWN_CHARACTERS]
    except Exception:  # such as an int of more digits than Python prints
        return f"a value of type {type(value).__name__}"


def _of_turns(result: Result, source: str) -> Iterator[RewardCall]:
    for response, item in _members(result.get("turn_rewards") or {}, "turn_rewards"):
        named = item if isinstance(item, Mapping) else {REWARD: item}
        for name, value in _members(named, f"the turn {response}"):
            yield _reward(name, value, response, source)


def _reward(name: str, item: object, response: str | None, source: str) -> RewardCall:
    if not isinstance(item, Mapping):
        return RewardCall(name, as_reward(item), response, False, source)
    judge = item.get("source", source)
    if item.keys() - {"value", "source"} or not isinstance(judge, str):
        raise BadResult(f"reward {name} has a value and a source, not {shown(dict(item))}")
    return RewardCall(name, as_reward(item.get("value")), response, False, judge)


def _members(value: object, field: str) -> list[tuple[str, object]]:
    if not isinstance(value, Mapping):
        raise BadResult(f"{field} is a mapping from names to numbers, not {type(value).__name__}")
    return [(str(name), item) for name, item in value.items()]
