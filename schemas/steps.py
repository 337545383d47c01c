"""Optimizer steps as people see them: numbers, names, and the sessions that they trained. Pure."""

from seamlessflow.schemas.records import StepCommitted, StepGroup


def shown_step(step: int) -> int:
    """Return the number of a step for people, who count from 1 as the lines of a run do.

    Records, and the files of trained tokens, count from 0.
    """
    return step + 1


def step_name(step: int) -> str:
    """Return the name of a step in a sentence; `step` counts from 0."""
    return f"step {shown_step(step)}"


def trained_sessions(commit: StepCommitted, group: StepGroup) -> frozenset[str]:
    """Return the sessions of a group of the step that have a token in its loss.

    A log from before 0.1.0 has no counts of tokens. For such a log all sessions are returned.
    """
    if not commit.methods and not commit.trained_tokens:
        return frozenset(group.sessions)
    return frozenset(name for name in group.sessions if name in commit.trained_tokens)
