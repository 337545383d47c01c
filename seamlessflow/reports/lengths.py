"""Lengths of sessions that a run began for training, beside those that it trained. Pure.

Both come from the log. *Begun* are all finalized training sessions (`Trajectory`), also failed,
stopped, dropped, stale and masked ones. *Trained* are those whose tokens entered the loss in a step
behind the newest weights (`StepCommitted.trained_tokens`). Called by `summary.py`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from seamlessflow.reports.reward_curve import SessionFacts, StepFacts
from seamlessflow.trainer.data.lengths import quantiles

NOTICED = 0.1
"""The report warns if sessions that steps took are shorter in the mean by this share or more."""


def length_figures(
    sessions: Mapping[str, SessionFacts], steps: Sequence[StepFacts]
) -> dict[str, Any]:
    """Return both distributions, and how many sessions were not trained, by their fate.

    Empty if the log does not say what was trained.
    """
    begun, trained = begun_and_trained(sessions, steps)
    if not trained:
        return {}
    left_out = Counter(session.fate for session in begun)
    left_out.subtract(session.fate for session in trained)
    # Equal rewards keep a group out whatever its length: often groups that all failed, the longest.
    names = {name for step in steps for name in (*step.trained_tokens, *step.equal)}
    taken = [
        session
        for name, session in sessions.items()
        if name in names and session.purpose == "train"
    ]
    return {
        "begun": _distribution(begun),
        "taken": _distribution(taken),
        "trained": _distribution(trained),
        "not_trained": {fate: count for fate, count in sorted(left_out.items()) if count},
    }


def begun_and_trained(
    sessions: Mapping[str, SessionFacts], steps: Sequence[StepFacts]
) -> tuple[list[SessionFacts], list[SessionFacts]]:
    """Return all sessions for training, and among them those with trained tokens."""
    begun = {name: session for name, session in sessions.items() if session.purpose == "train"}
    trained = {name for step in steps for name in step.trained_tokens} & begun.keys()
    return list(begun.values()), [begun[name] for name in sorted(trained)]


def bias(figures: Mapping[str, Any]) -> str | None:
    """Return a warning if the sessions that steps took are shorter than those begun, or None.

    Sessions in groups with equal rewards count as taken. Taken sessions may be longer, since a
    stopped session counts only with its part.
    """
    if not figures:
        return None
    begun, taken = (figures[kind]["tokens"]["mean"] for kind in ("begun", "taken"))
    ratio = taken / begun if begun else 1.0
    if ratio > 1 - NOTICED:
        return None
    fates = ", ".join(f"{count} {fate}" for fate, count in figures["not_trained"].items())
    return (
        f"sessions that steps took are {1 - ratio:.0%} shorter than those begun, {taken:,.0f} "
        f"against {begun:,.0f} sampled tokens in the mean: a bias to short episodes (not trained: "
        f"{fates or 'none'})"
    )


def _distribution(sessions: Sequence[SessionFacts]) -> dict[str, Any]:
    tokens = quantiles(session.tokens_sampled for session in sessions)
    turns = quantiles(session.turns for session in sessions)
    return {
        "sessions": len(sessions),
        "tokens": {name: round(value, 1) for name, value in tokens.items()},
        "turns": {name: round(value, 1) for name, value in turns.items()},
    }
