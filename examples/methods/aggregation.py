"""An aggregation of your own: a session counts by the root of its length.

That lies between `sequence_mean`, where each session counts alike, and `token_mean`.
"""

import numpy as np


def root_of_length(sessions_C, trained_C, settings):
    """Return for each chain (C) the weight of one of its trained tokens."""
    tokens_S = np.bincount(sessions_C, trained_C)  # trained tokens of each session
    weights_C = 1 / np.sqrt(tokens_S[sessions_C])
    return weights_C / (weights_C * trained_C).sum()
