"""Barren steps, in which no token could be trained. Too many in a row end the run.

Nothing to train is not the same as nothing learned: a group whose sessions are rewarded alike could
be trained. A rule that masks every token will do so again, so the first such step is reported. A
step that only lost its groups is not barren, since the agents' environment may come back. Before
the first trained step it is barren, as nothing shows yet that the agent works. A step that lost its
groups to a failed method is always barren: the method will fail again. Pure; called by
`sequence.py`.
"""

from dataclasses import dataclass

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.trainer.data.figures.of_batch import StepTokens


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
    """The count of barren steps in a row, up to the present step."""

    count: int = 0

    def add(self, tokens: StepTokens, trained_before: int) -> bool:
        """Count a step; return whether it begins a row of barren steps and must be reported.

        `tokens`: those in its batch and in the groups that it gave up. `trained_before`: how many
        earlier steps trained something.
        """
        lost = bool(tokens.masked or tokens.failed)
        barren = not tokens.trainable and (lost or not trained_before)
        self.count = self.count + 1 if barren else 0
        return self.count == 1
