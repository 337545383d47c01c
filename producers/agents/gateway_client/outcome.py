"""How an agent ended, and what that means for its session: rewards, status and whose doing it was.

Pure. `episode.py` runs the agent, asks here, and tells the gateway.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real

REASON_CHARACTERS = 500
_STATUSES = ("complete", "truncated")


class BadResult(ValueError):
    """An agent or a judge gave back something that is no result."""


@dataclass(frozen=True)
class Returned:
    """The agent came to its end; `result` is what it gave back, with its reward if there is one."""

    result: Mapping[str, object]


@dataclass(frozen=True)
class Crashed:
    """The agent or its judge raised, or the command failed."""

    detail: str
    infrastructure: bool = False


@dataclass(frozen=True)
class TimedOut:
    """The agent was stopped at its time limit."""

    limit_s: float


@dataclass(frozen=True)
class Stopped:
    """This process ended before the agent did."""


Ending = Returned | Crashed | TimedOut | Stopped


@dataclass(frozen=True)
class RewardCall:
    """One reward to assign; `response_id` names the judged turn, None means the session."""

    name: str
    value: float
    response_id: str | None
    final: bool


@dataclass(frozen=True)
class CloseCall:
    """How to close the session."""

    status: str
    reason: str
    cause: str
    await_reward_s: float = 0


@dataclass(frozen=True)
class Outcome:
    """What to tell the gateway, in this order."""

    rewards: tuple[RewardCall, ...]
    close: CloseCall


def result_of(value: object) -> Mapping[str, object]:
    """What an agent returned, as a mapping. Raises `BadResult`."""
    if value is None:
        return {}
    if isinstance(value, Real):
        return {"reward": number(value)}
    if isinstance(value, Mapping):
        return {str(name): item for name, item in value.items()}
    raise BadResult(f"an agent returns a number, a mapping or None, not {type(value).__name__}")


def number(value: object) -> float:
    """A reward as a finite float. Raises `BadResult`."""
    if not isinstance(value, Real) or not math.isfinite(float(value)):
        raise BadResult(f"a reward is a finite number, not {value!r}")
    return float(value)


def outcome(ending: Ending, timeout_reward: float | None, await_reward_s: float) -> Outcome:
    """What the session gets. Rewards that cannot be read count as a crash of the agent."""
    match ending:
        case Returned(result):
            try:
                return _finished(result, await_reward_s)
            except BadResult as error:
                return outcome(Crashed(str(error)), timeout_reward, await_reward_s)
        case Crashed(detail, infrastructure):
            cause = "infrastructure" if infrastructure else "environment"
            return Outcome((), CloseCall("aborted", detail[-REASON_CHARACTERS:], cause))
        case TimedOut(limit_s):
            return _timed_out(limit_s, timeout_reward)
        case Stopped():
            close = CloseCall("aborted", "the process that ran the agent ended", "infrastructure")
            return Outcome((), close)


def _finished(result: Mapping[str, object], await_reward_s: float) -> Outcome:
    status = result.get("status", "complete")
    if status not in _STATUSES:
        raise BadResult(f"an agent may end as {' or '.join(_STATUSES)}, not as {status!r}")
    rewards = _rewards(result)
    judged = any(reward.name == "reward" and reward.response_id is None for reward in rewards)
    if judged or await_reward_s:
        wait = 0 if judged else await_reward_s
        return Outcome(rewards, CloseCall(str(status), "", "policy", wait))
    return Outcome(rewards, CloseCall("unrewarded", "the agent gave no reward", "environment"))


def _timed_out(limit_s: float, reward: float | None) -> Outcome:
    reason = f"the agent was stopped after {limit_s:.1f} s"
    if reward is None:
        return Outcome((), CloseCall("timeout", reason, "environment"))
    return Outcome(
        (RewardCall("reward", reward, None, True),), CloseCall("timeout", reason, "policy")
    )


def _rewards(result: Mapping[str, object]) -> tuple[RewardCall, ...]:
    found: list[tuple[str, object, str | None]] = [
        ("reward", value, response) for response, value in _named(result, "turn_rewards")
    ]
    found += [(name, value, None) for name, value in _named(result, "rewards")]
    if result.get("reward") is not None:
        found.append(("reward", result["reward"], None))
    last = len(found) - 1
    return tuple(
        RewardCall(
            name, number(value), response, place == last and name == "reward" and not response
        )
        for place, (name, value, response) in enumerate(found)
    )


def _named(result: Mapping[str, object], field: str) -> list[tuple[str, object]]:
    value = result.get(field) or {}
    if not isinstance(value, Mapping):
        raise BadResult(f"{field} is a mapping from names to numbers, not {type(value).__name__}")
    return [(str(name), item) for name, item in value.items()]
