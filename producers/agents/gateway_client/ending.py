"""An agent's endings, and the calls that close its session: rewards, status and cause. Pure.

`episode.py` runs the agent and makes the calls that `closing_calls` returns.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from seamlessflow.producers.agents.result import (
    LAST_LINE,
    REWARD,
    BadResult,
    Result,
    RewardCall,
    rewards_of,
    shown,
)

REASON_CHARACTERS = 2_000
"""Longest reason. A longer one is cut at its front: a traceback says at its end what is wrong."""
PRUNED = "pruned"
"""Status of a session that was stopped since its group needs it no more."""
_NOT_NEEDED = "its group was complete without it (pacing.redundancy)"
_STATUSES = ("complete", "truncated")
_UNREWARDED = "unrewarded"
_TIMEOUT_CAUSES = {"zero": "policy", "retry": "environment", "drop": "setting"}


@dataclass(frozen=True)
class AgentReturned:
    """The agent finished; `result` is what it returned, with its judge's rewards, if any."""

    result: Result


@dataclass(frozen=True)
class AgentCrashed:
    """The agent or its judge raised an exception, or the command failed."""

    detail: str
    infrastructure: bool = False
    unjudged: bool = False
    """True if the judge raised it."""
    bad_result: bool = False
    """True if the agent or its judge returned a bad result, or the environment itself failed. The
    policy never causes these."""


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
    rewards: Sequence[str] = (REWARD,)
    """Names of the rewards that each session needs."""


@dataclass(frozen=True)
class AgentPruned:
    """The agent's group was complete without it, so it was stopped."""


Ending = AgentReturned | AgentCrashed | AgentTimedOut | AgentStopped | AgentPruned


@dataclass(frozen=True)
class CloseCall:
    """The call that closes the session."""

    status: str
    reason: str
    cause: str
    await_reward_s: float = 0
    on_limit: str = "zero"
    await_rewards: tuple[str, ...] = ()
    """Names of the rewards that the session waits for; none: it waits for a final one."""


@dataclass(frozen=True)
class ClosingCalls:
    """Calls that end a session: first its rewards, then its close."""

    rewards: tuple[RewardCall, ...]
    close: CloseCall


def closing_calls(ending: Ending, rules: EndingRules) -> ClosingCalls:
    """Return the calls for an ending. Rewards that are no numbers count as the agent's crash."""
    match ending:
        case AgentReturned(result):
            try:
                return _finished(result, rules)
            except Exception as error:  # the agent's own mapping may raise anything
                return closing_calls(AgentCrashed(str(error), bad_result=True), rules)
        case AgentCrashed():
            return ClosingCalls((), _crashed(ending, rules))
        case AgentTimedOut(limit_s, late=True):
            reason = f"the agent began late and was stopped after {limit_s:.1f} s"
            return ClosingCalls((), CloseCall("aborted", reason, "infrastructure"))
        case AgentTimedOut(limit_s):
            return _timed_out(limit_s, rules)
        case AgentPruned():
            return ClosingCalls((), CloseCall(PRUNED, _NOT_NEEDED, "setting"))
        case AgentStopped():  # no fault of the agent: the sample is tried again
            close = CloseCall(
                "aborted", "the agents process ended: the sample is tried again", "infrastructure"
            )
            return ClosingCalls((), close)


def _crashed(crash: AgentCrashed, rules: EndingRules) -> CloseCall:
    return CloseCall(
        _UNREWARDED if crash.unjudged else "aborted",
        crash.detail[-REASON_CHARACTERS:],
        "infrastructure" if crash.infrastructure else "environment",
        # Else a mistake in the agent, or a failing judge, would be trained as reward 0 wherever
        # the last answer was cut, and the display would not show it.
        on_limit="retry" if crash.bad_result or crash.unjudged else rules.on_limit,
    )


def _finished(result: Result, rules: EndingRules) -> ClosingCalls:
    status = result.get("status", "complete")
    if status not in _STATUSES:
        raise BadResult(f"an agent may end as {' or '.join(_STATUSES)}, not as {shown(status)}")
    rewards = rewards_of(result)
    present = [reward.name for reward in rewards if reward.response_id is None]
    lacks = [name for name in rules.rewards if name not in present]
    if lacks and not rules.await_reward_s:
        reason = _lack(lacks, present, result)
        close = CloseCall(_UNREWARDED, reason, "environment", on_limit=rules.on_limit)
        return ClosingCalls(tuple(rewards), close)
    if rewards and not lacks:
        rewards[-1] = replace(rewards[-1], final=True)
    wait_s = rules.await_reward_s if lacks else 0
    # A reward without a name is final, unless several judges are waited for.
    named = tuple(lacks) if tuple(rules.rewards) != (REWARD,) else ()
    close = CloseCall(str(status), "", "policy", wait_s, rules.on_limit, named)
    return ClosingCalls(tuple(rewards), close)


def _lack(lacks: Collection[str], present: Collection[str], result: Result) -> str:
    """Return the reason for missing rewards. It also names those given: one may be misspelt."""
    text = f"the agent gave no reward {', '.join(map(repr, lacks))}"
    names = ", ".join(map(repr, dict.fromkeys(present)))
    but = f", but {names}" if names else ""
    line = f"; its output ends with {shown(result[LAST_LINE])}" if LAST_LINE in result else ""
    return (text + but + line)[:REASON_CHARACTERS]


def _timed_out(limit_s: float, rules: EndingRules) -> ClosingCalls:
    reason = f"the agent was stopped after {limit_s:.1f} s"
    close = CloseCall("timeout", reason, _TIMEOUT_CAUSES[rules.on_timeout])
    if close.cause != "policy" or REWARD not in rules.rewards:
        return ClosingCalls((), close)
    return ClosingCalls((RewardCall(REWARD, rules.timeout_reward, None, True),), close)
