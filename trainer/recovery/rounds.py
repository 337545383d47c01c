"""Rounds of evaluations under way, as a checkpoint keeps them. Used by the fold of `control`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seamlessflow.trainer.data.figures.evaluation import EvaluatedGroup

Round = tuple[int, str]
"""Version and split of an evaluation."""
ANY_SPLIT = ""
"""The split of evaluations of which a checkpoint of an earlier release does not name it."""

_UNKNOWN: Round = (-1, "")
"""The round of groups from a checkpoint that did not keep it; it is not reported."""


@dataclass(slots=True)
class EvaluationRound:
    """The groups that evaluate one version on one split."""

    open: dict[str, int] = field(default_factory=dict)
    """Deadlines of those that are admitted and not over, in milliseconds, by group."""
    groups: int = 0
    ended: list[EvaluatedGroup] = field(default_factory=list)
    """Those of which sessions counted."""


def rounds_json(rounds: Mapping[Round, EvaluationRound]) -> list[list[Any]]:
    """Return rounds as plain values."""
    return [
        [*key, evaluation.open, evaluation.groups, [list(group) for group in evaluation.ended]]
        for key, evaluation in rounds.items()
    ]


def rounds_from(values: Mapping[str, Any]) -> dict[Round, EvaluationRound]:
    """Return the rounds among the plain values of a checkpoint, also of an earlier release."""
    if "rounds" in values:
        return {
            (version, split): EvaluationRound(dict(open_), groups, _ended(*ended))
            for version, split, open_, groups, *ended in values["rounds"]
        }
    # A checkpoint of an earlier release knows only the groups.
    older = dict.fromkeys(values["evaluating"], 0)
    return {_UNKNOWN: EvaluationRound(older, len(older))} if older else {}


def _ended(groups: Sequence[Sequence[Any]] | int, rewards: float = 0) -> list[EvaluatedGroup]:
    """Return the groups of a round; of an earlier release their sessions and rewards in one."""
    if isinstance(groups, int):
        return [EvaluatedGroup(groups, rewards / groups, None)] if groups else []
    return [EvaluatedGroup(*group) for group in groups]


def evaluated_from(values: Mapping[str, Any]) -> dict[str, int]:
    """Return the newest evaluated version by split, also of an earlier release's checkpoint."""
    versions = values.get("evaluated", {})
    # A checkpoint of an earlier release has one number: that of its only set.
    return {ANY_SPLIT: versions} if isinstance(versions, int) else dict(versions)
