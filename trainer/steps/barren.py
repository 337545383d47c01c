"""Barren steps: those in which no token could be trained, and the end of a run that has only them.

Nothing to train is not the same as nothing learned: a group whose sessions are rewarded alike
could be trained. A rule that masks every token will also mask those of the next step, so it is
reported at the first one. A step that only lost its groups is not barren, since the agents'
environment may come back; before the first trained step it is, since then nothing shows that the
agent works. A step whose groups were lost to a method that failed is barren at any time: the method
will fail again. Pure; called by the sequence of steps.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.trainer.data.batch import Prepared
from seamlessflow.trainer.data.methods import METHOD_FAILED

REMEDIES: Mapping[str, str] = {
    "inexact_version": "weights were replaced between tokens whose version is not known apart",
    "inexact_top_p": "set policy.top_p = 1, or policy.train_truncated with rollout.engine torch",
    "inexact_top_k": "set policy.top_k = 0, or policy.train_truncated with rollout.engine torch",
    "inexact_json_schema": "sampled by the grammar of a response_format: let the agent force a "
    "tool call instead, or set policy.train_inexact",
    "inexact": "not sampled from the model's own distribution: set policy.top_p = 1 and "
    "policy.top_k = 0, let the agent ask for no response_format, or set policy.train_inexact",
    "eval": "the sessions are of purpose eval: leave purpose at train",
    "stale": "older than run.lag (trainer.max_staleness) optimizer steps: raise it, or set "
    "trainer.on_stale = correct",
    "overlong": "a limit of trainer.overlong.masked ended the sessions: raise it, or train them",
    "prompt_mismatch": "the engine saw another prompt than was recorded: check the engine",
    "other_policy": "sampled by another policy than run.policy",
    "abandoned": "the agent went on from another answer to the same prompt; where its samples are "
    "votes, set policy.siblings = all",
    "undelivered": "clients left before they had the answer: raise their time-outs, or set "
    "policy.train_undelivered",
    "cancelled": "clients cancelled their calls",
    "no_prefix": "no token is before the first one, so nothing predicts it: begin with a prompt",
    "cut": "turns were under way when the session was closed",
    "failed": "turns failed, see TurnFailed",
}
"""Meaning of a reason, and the setting that changes it, by the first words of the reason."""


class NothingToTrain(SeamlessFlowError):
    """A run whose last steps all had no token to train."""

    lasting = True

    def __init__(self, steps: int, reason: str) -> None:
        self.steps = steps
        self.reason = reason
        super().__init__(
            f"nothing could be trained in {steps} steps in a row (trainer.most_barren_steps): "
            f"{reason}"
        )


@dataclass(slots=True)
class StepTokens:
    """The sampled tokens of groups that were complete: those that could be trained, and the rest
    by the reason of its mask.
    """

    trainable: int = 0
    masked: Counter[str] = field(default_factory=Counter)
    over_age: int = 0
    """Those of them that are older than `trainer.max_staleness`."""
    failed: int = 0
    """Groups for which a method failed; their tokens count as neither."""
    failure: str = ""
    """The newest of these failures."""

    def with_groups(self, groups: Iterable[Prepared]) -> "StepTokens":
        """Return these tokens together with those of `groups`."""
        tokens = replace(self, masked=self.masked.copy())
        for group in groups:
            if group.dropped and group.dropped[0] == METHOD_FAILED:
                tokens.failed, tokens.failure = tokens.failed + 1, group.dropped[1]
            tokens.trainable += group.trainable
            tokens.masked += group.masked()
            tokens.over_age += group.over_age
        return tokens


@dataclass(slots=True)
class BarrenSteps:
    """The barren steps in a row, up to the present one."""

    count: int = 0

    def add(self, tokens: StepTokens, trained_before: int) -> bool:
        """Count a step; return whether it begins a row of barren ones, which is to be reported.

        `tokens`: of its batch and of the groups that it gave up. `trained_before`: the steps of
        the run before it that trained something.
        """
        lost = bool(tokens.masked or tokens.failed)
        barren = not tokens.trainable and (lost or not trained_before)
        self.count = self.count + 1 if barren else 0
        return self.count == 1


def why(tokens: StepTokens, dropped: Mapping[str, int], newest: str) -> str:
    """Return which rules took all tokens of a barren step, how many, and which setting to change.

    `dropped`: the groups that the step lost, by reason; `newest`: the detail of the last of them.
    They are named if no token was sampled that a rule could mask.
    """
    total = tokens.masked.total()
    reasons = [f"for {tokens.failed} groups {tokens.failure}"] if tokens.failed else []
    reasons += [
        f"{count:,} of {total:,} sampled tokens are masked as {reason}{_remedy(reason)}"
        for reason, count in sorted(tokens.masked.items(), key=lambda item: -item[1])
    ]
    if not reasons:
        lost = ", ".join(f"{count} {reason}" for reason, count in sorted(dropped.items()))
        reasons = [f"all groups were dropped ({lost}), the newest: {newest}"]
    return "; ".join(reasons)


def _remedy(reason: str) -> str:
    for name, remedy in REMEDIES.items():
        if reason == name or reason.startswith(f"{name}_"):
            return f" ({remedy})"
    return ""
