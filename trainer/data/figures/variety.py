"""Variety of a batch: equal and divided sessions, and what dominates. Pure."""

from collections import Counter
from collections.abc import Sequence

from seamlessflow.trainer.data.batch import Prepared
from seamlessflow.trainer.data.sessions import ValidSession


def variety(groups: Sequence[Prepared]) -> dict[str, float]:
    """Return the shares of equal and of divided sessions, and those of the tokens that the largest
    group has, and the largest task over all its groups.

    Equal are sessions of a group with the same sampled tokens; divided is one with several chains.
    """
    by_group = [[session for session in group.group.sessions if session.chains] for group in groups]
    sessions = sum(map(len, by_group))
    if not sessions:
        return {}
    trained = [sum(chain.trained() for chain in group.chains) for group in groups]
    of_tasks = Counter[str]()
    for group, tokens in zip(groups, trained, strict=True):
        of_tasks[_task(group)] += tokens
    total = max(1, sum(trained))
    return {
        "equal_share": sum(map(_equal, by_group)) / sessions,
        "divided_share": sum(len(session.chains) > 1 for members in by_group for session in members)
        / sessions,
        "largest_group_share": max(trained) / total,
        "tasks": sum(tokens > 0 for tokens in of_tasks.values()),
        "largest_task_share": max(of_tasks.values()) / total,
    }


def _task(group: Prepared) -> str:
    """Return the task of a group; one without a name is like no other."""
    names = (session.source.task_id for session in group.group.sessions)
    return next(filter(None, names), group.group.group_id)


def _equal(sessions: Sequence[ValidSession]) -> int:
    """Return how many sessions of a group have the trained tokens of another one."""
    counts = Counter(map(_sampled, sessions))
    return sum(count for count in counts.values() if count > 1)


def _sampled(session: ValidSession) -> bytes:
    """Return the trained tokens of a session as bytes."""
    return b"".join(
        chain.tokens.ids_T[chain.tokens.trained_T].tobytes() for chain in session.chains
    )
