"""Columns: numbers by trained token that the devices compute for a batch before it is trained."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray


class Column(StrEnum):
    """The name of a column, which says by what it is computed."""

    REFERENCE = "reference"
    """Log-prob under `trainer.reference`, at the temperature that the token was sampled at."""
    TEACHER = "teacher"
    """Log-prob under `trainer.teacher`, at the same temperature."""
    VALUE = "value"
    """Value of the place before the token, by the critic."""
    ENTROPY = "entropy"
    """Entropy of the policy where it predicts the token, in nats, under the weights before the
    step, at the temperature that the token was sampled at."""
    PROXIMAL = "proximal"
    """Log-prob under the weights before the step, at the temperature that the token was sampled at;
    for a step of several updates, and for advantages by how far the policy is from another."""
    TARGET = "target"
    """Return that the critic learns for that place; the trainer computes it, from the values."""
    TARGET_WEIGHT = "target_weight"
    """Weight of that place in the critic's loss; those of a step sum to 1."""


Columns = Mapping[Column, NDArray[np.float32]]
"""Columns of the trained tokens (N) of a chain or of a micro-batch."""
Annotated = Mapping[Column, Sequence[NDArray[np.float32]]]
"""Columns as an array for each micro-batch."""
