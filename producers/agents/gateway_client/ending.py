"""Endings of an agent, and the calls that close its session: rewards, status and cause. Pure.

`episode.py` runs the agent and makes the calls that `closing_calls` returns.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Literal

REASON_CHARACTERS = 2_000
"""Longest reason; of a longer one the end is kept, which is the point of a traceback."""
PRUNED = "pruned"
"""Status of a session that was stopped since nobody needs it any more."""
_NOT_NEEDED = "its group was complete without it (pacing.redundancy)"
_STATUSES = ("complete", "truncated")
_TIMEOUT_CAUSES = {"zero": "policy", "retry": "environment", "drop": "setting"}


class BadResult(ValueError):
    """An agent or a judge returned a value that is not a valid result."""


@dataclass(frozen=True)
class AgentReturned:
    """The agent finished; `result` is what it returned, with the reward of its judge, if any."""

    result: Mapping[str, object]


@dataclass(frozen=True)
class AgentCrashed:
    """The agent or its judge raised an exception, or the command failed."""

    detail: str
    infrastructure: bool = False


@dataclass(frozen=True)
class AgentTimedOut:
    """The agent was still running at its time limit."""

    limit_s: float
    late: bool = False
    """True if it began too late to have all of its time."""


@dataclass(frozen=True)
class AgentStopped:
    """The agents process ended before the agent did."""


@dataclass(frozen=True)
class EndingRules:
    """Settings that decide what an ending is worth; see `AgentsSection`."""

    on_timeout: Literal["zero", "retry", "drop"] = "zero"
    timeout_reward: float = 0
    on_limit: Literal["zero", "retry", "drop"] = "zero"
    await_reward_s: float = 0


@dataclass(frozen=True)
class AgentPruned:
    """The agent's group was complete without it, so it was stopped."""


Ending = AgentReturned | AgentCrashed | AgentTimedOut | AgentStopped | AgentPruned


@dataclass(frozen=True)
class RewardCall:
    """One reward to assign; `response_id` names the judged turn, None stands for the session.

    `final` marks the terminal reward of the session.
    """

    name: str
    value: float
    response_id: str | None
    final: bool


@dataclass(frozen=True)
class CloseCall:
    """The call that closes the session."""

    status: str
    reason: str
    cause: str
    await_reward_s: float = 0
    on_limit: str = "zero"


@dataclass(frozen=True)
class ClosingCalls:
    """Calls that end a session: first its rewards, then its close."""

    rewards: tuple[RewardCall, ...]
    close: CloseCall


def result_of(value: object) -> Mapping[str, object]:
    """Return what an agent returned as a mapping. Raises `BadResult`."""
    if value is None:
        return {}
    if isinstance(value, Real):
        return {"reward": as_reward(value)}
    if isinstance(value, Mapping):
        return {str(name): item for name, item in value.items()}
    raise BadResult(f"an agent returns a number, a mapping or None, not {type(value).__name__}")


def as_reward(value: object) -> float:
    """Return a reward as a finite float. Raises `BadResult`."""
    if not isinstance(value, Real) or not math.isfinite(float(value)):
        raise BadResult(f"a reward is a finite number, not {value!r}")
    return float(value)


def closing_calls(ending: Ending, rules: EndingRules) -> ClosingCalls:
    """Return the calls for an ending. Rewards that are no numbers count as a crash of the agent."""
    match ending:
        case AgentReturned(result):
            try:
                return _finished(result, rules)
            except BadResult as error:
                return closing_calls(AgentCrashed(str(error)), rules)
        case AgentCrashed(detail, infrastructure):
            cause = "infrastructure" if infrastructure else "environment"
            reason = detail[-REASON_CHARACTERS:]
            return ClosingCalls((), CloseCall("aborted", reason, cause, on_limit=rules.on_limit))
        case AgentTimedOut(limit_s, late=True):
            reason = f"the agent began late and was stopped after {limit_s:.1f} s"
            return ClosingCalls((), CloseCall("aborted", reason, "infrastructure"))
        case AgentTimedOut(limit_s):
            return _timed_out(limit_s, rules)
        case AgentPruned():
            return ClosingCalls((), CloseCall(PRUNED, _NOT_NEEDED, "setting"))
        case AgentStopped():  # no fault of the agent: the sample is tried again
            close = CloseCall("aborted", "the process that ran the agent ended", "infrastructure")
            return ClosingCalls((), close)


def _finished(result: Mapping[str, object], rules: EndingRules) -> ClosingCalls:
    status = result.get("status", "complete")
    if status not in _STATUSES:
        raise BadResult(f"an agent may end as {' or '.join(_STATUSES)}, not as {status!r}")
    rewards = _rewards(result)
    judged = any(reward.name == "reward" and reward.response_id is None for reward in rewards)
    if judged or rules.await_reward_s:
        wait = 0 if judged else rules.await_reward_s
        return ClosingCalls(
            rewards, CloseCall(str(status), "", "policy", wait, on_limit=rules.on_limit)
        )
    reason = "the agent gave no reward"
    close = CloseCall("unrewarded", reason, "environment", on_limit=rules.on_limit)
    return ClosingCalls(rewards, close)


def _timed_out(limit_s: float, rules: EndingRules) -> ClosingCalls:
    reason = f"the agent was stopped after {limit_s:.1f} s"
    close = CloseCall("timeout", reason, _TIMEOUT_CAUSES[rules.on_timeout])
    if close.cause != "policy":
        return ClosingCalls((), close)
    return ClosingCalls((RewardCall("reward", rules.timeout_reward, None, True),), close)


def _rewards(result: Mapping[str, object]) -> tuple[RewardCall, ...]:
    found: list[tuple[str, object, str | None]] = [
        ("reward", value, response) for response, value in _named(result, "turn_rewards")
    ]
    found += [(name, value, None) for name, value in _named(result, "rewards")]
    if result.get("reward") is not None:
        found.append(("reward", result["reward"], None))
    # The terminal reward goes last: it is the one that is sent as final.
    last = len(found) - 1
    return tuple(
        RewardCall(
            name, as_reward(value), response, place == last and name == "reward" and not response
        )
        for place, (name, value, response) in enumerate(found)
    )


def _named(result: Mapping[str, object], field: str) -> list[tuple[str, object]]:
    value = result.get(field) or {}
    if not isinstance(value, Mapping):
        raise BadResult(f"{field} is a mapping from names to numbers, not {type(value).__name__}")
    return [(str(name), item) for name, item in value.items()]
