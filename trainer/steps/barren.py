"""Barren steps: those in which no token could be trained, and the end of a run that has only them.

Nothing to train is not the same as nothing learned: a group whose sessions are rewarded alike could
be trained. A rule that masks every token will do so again, so it is reported at the first step. A
step that only lost its groups is not barren, since the agents' environment may come back. But it is
barren before the first trained step, as nothing shows yet that the agent works. A step that lost
its groups to a failed method is always barren: the method will fail again. Pure; called by the
sequence of steps.
"""

from dataclasses import dataclass

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.trainer.metrics.unlearned import StepTokens


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
class BarrenSteps:
    """The barren steps in a row, up to the present one."""

    count: int = 0

    def add(self, tokens: StepTokens, trained_before: int) -> bool:
        """Count a step; return whether it begins a row of barren steps, which is to be reported.

        `tokens`: tokens of its batch and of the groups that it gave up. `trained_before`: earlier
        steps of the run that trained something.
        """
        lost = bool(tokens.masked or tokens.failed)
        barren = not tokens.trainable and (lost or not trained_before)
        self.count = self.count + 1 if barren else 0
        return self.count == 1
