"""Episodes by role: each role's session, each role's result, and their common end. Pure.

A task that names roles is one episode: each role has its own session, with its own policy and
group. What ends the episode without a result ends all its sessions, so all are tried again
together. Called by `episode.py` and `play.py`.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from seamlessflow.producers.agents.gateway_client.ending import (
    REASON_CHARACTERS,
    ClosingCalls,
    Ending,
    EndingRules,
    closing_calls,
)
from seamlessflow.producers.agents.result import BadResult, Result, result_of, shown
from seamlessflow.schemas.records import Task

ALONE = ""
"""Role of an episode's only session."""
_ROLE = "role"
"""Key of the role in its session's metadata."""


def by_role(task: Task) -> Mapping[str, Task]:
    """Return the task for each role's session; without roles, for the only session."""
    if not task.roles:
        return {ALONE: task}
    return {
        role.role: replace(
            task,
            group_id=role.group_id,
            policy=role.policy,
            metadata={**task.metadata, _ROLE: role.role},
            roles=(),
        )
        for role in task.roles
    }


def policies_of(task: Task, modules: Mapping[str, str]) -> frozenset[str]:
    """Return the policies that a task's agent may call."""
    if task.roles:
        return frozenset(role.policy for role in task.roles)
    return frozenset({task.policy, *modules.values()})


def results_of(value: object, roles: Collection[str]) -> Mapping[str, Result]:
    """Return each role's result from an agent's return value. Raises `BadResult`."""
    if ALONE in roles:
        return {ALONE: result_of(value)}
    results = {role: None for role in roles} if value is None else result_of(value)
    if results.keys() != {*roles}:
        wanted = ", ".join(roles)
        raise BadResult(f"an agent returns a result for each of {wanted}, not {shown(value)}")
    return {role: result_of(results[role]) for role in roles}


def calls_by_role(endings: Mapping[str, Ending], rules: EndingRules) -> Mapping[str, ClosingCalls]:
    """Return the calls that end each session of an episode.

    If one session ends without its rewards, the others do too.
    """
    calls = {role: closing_calls(ending, rules) for role, ending in endings.items()}
    failed = next((role for role in calls if calls[role].close.cause != "policy"), None)
    if failed is None or len(calls) == 1:
        return calls
    close = calls[failed].close
    reason = f"role {failed}: {close.reason}"[:REASON_CHARACTERS]
    others = replace(close, reason=reason)
    return {role: calls[role] if role == failed else ClosingCalls((), others) for role in calls}
