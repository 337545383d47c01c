"""Evaluations: the scheduler admits their groups, the trainer reports each round once it is over.

A round is all groups that evaluate one version on one split. It is folded only from `control`, so a
trainer that resumes also reports rounds that ended while it was away. Called by the sequence of
steps.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from seamlessflow.schemas.records import EvaluationCompleted
from seamlessflow.trainer.data.figures.chances import USUAL, PassTerms
from seamlessflow.trainer.data.figures.evaluation import Round, figures
from seamlessflow.trainer.recovery.control_state import ControlState

BEGIN_MS = 120_000
"""Longest wait, after the last step, for the scheduler to begin the last evaluation."""

GRACE_MS = 60_000
"""Longest wait for a round's end after its groups' deadlines."""

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Evaluations:
    """A run's evaluation rounds; `_sets` are the scheduler's evaluation sets by name."""

    _control_state: ControlState
    _sets: Mapping[str, PassTerms]
    _sent: set[Round] = field(default_factory=set)
    """Rounds whose report is on its way to the log."""
    _ended_ms: int | None = None

    def completed(self, now_ms: int) -> list[EvaluationCompleted]:
        """Return a report on each round that is over; no round is reported twice."""
        rounds = self._control_state.rounds
        over = [
            key
            for key, evaluation in rounds.items()
            if not evaluation.open and key not in self._sent
        ]
        reports = []
        for version, split in sorted(over):
            self._sent.add((version, split))
            report = self._report(version, split, now_ms)
            reports.append(report)
            shown = "none" if report.reward_mean is None else f"{report.reward_mean:.4g}"
            _log.info("evaluation of version %d (%s): mean reward %s", version, split, shown)
        return reports

    def _report(self, version: int, split: str, now_ms: int) -> EvaluationCompleted:
        evaluation = self._control_state.rounds[version, split]
        terms = self._sets.get(split, USUAL)
        result = figures(evaluation.ended, terms)
        return EvaluationCompleted(
            at_ms=now_ms,
            version=version,
            step=self._control_state.steps_of.get(version, version),
            split=split,
            groups=evaluation.groups,
            sessions=result.sessions,
            reward_mean=result.reward,
            reward_error=result.error,
            pass_at=_by_text(result.pass_at),
            pass_at_low=_by_text({k: ends.low for k, ends in result.pass_at_range.items()}),
            pass_at_high=_by_text({k: ends.high for k, ends in result.pass_at_range.items()}),
            pass_all=_by_text(result.pass_all),
            pass_all_low=_by_text({k: ends.low for k, ends in result.pass_all_range.items()}),
            pass_all_high=_by_text({k: ends.high for k, ends in result.pass_all_range.items()}),
            success=terms.success,
            turns=result.turns,
            sampled_tokens=result.sampled_tokens,
            prompt_tokens=result.prompt_tokens,
        )

    def under_way(self, version: int, now_ms: int) -> bool:
        """Return whether to wait for rounds after the last step, which made `version`."""
        if not self._sets:
            return False
        if self._ended_ms is None:
            self._ended_ms = now_ms
        rounds = self._control_state.rounds
        deadlines = [at for evaluation in rounds.values() for at in evaluation.open.values()]
        begun = all(self._begun(version, split) for split in self._sets)
        if begun and not deadlines:
            return any(key not in self._sent for key in rounds)
        # One set's rounds may be under way before another set's round has begun.
        limits = [at + GRACE_MS for at in deadlines]
        limit_ms = max(limits if begun else [*limits, self._ended_ms + BEGIN_MS])
        if now_ms < limit_ms:
            return True
        _log.error("version %d is not evaluated: no end of it by %d", version, limit_ms)
        return False

    def _begun(self, version: int, split: str) -> bool:
        """Return whether a version's round on a set began, or was reported before."""
        state = self._control_state
        return version <= state.evaluated.get(split, -1) or (version, split) in state.rounds


def _by_text(chances: Mapping[int, float]) -> dict[str, float]:
    return {str(k): chance for k, chance in chances.items()}
