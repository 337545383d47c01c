"""Sessions that an optimizer step trained, as `StepCommitted` records them. Pure."""

from schemas.records import StepCommitted, StepGroup


def trained_sessions(commit: StepCommitted, group: StepGroup) -> frozenset[str]:
    """Return the sessions of a group of the step that have a token in its loss.

    A log of before 0.1.0 has no counts of tokens: there it is all of them.
    """
    if not commit.methods and not commit.trained_tokens:
        return frozenset(group.sessions)
    return frozenset(name for name in group.sessions if name in commit.trained_tokens)
