"""A rule of your own that ends turns: the mean log-prob of the newest tokens is too low.

A rule sees the sampled tokens of a turn, each once and in order. Its state has to be JSON.
"""

from seamlessflow.producers.rollout.control.contract import TurnStop


class Unlikely:
    """Stop of a turn whose last `window` tokens were unlikely in the mean."""

    top = 0
    """Number of likeliest tokens that it needs to see, up to 20."""

    def __init__(self, *, below=-4.0, window=16, ends="turn"):
        self.below = below
        self.window = window
        self.ends = ends

    def begin(self, turn):
        """Return the state before the first token."""
        return []

    def step(self, state, token):
        """Return the state behind a token, and `TurnStop` or None."""
        newest = [*state, token.logprob][-self.window :]
        full = len(newest) == self.window
        unlikely = full and sum(newest) / self.window < self.below
        return newest, TurnStop("unlikely", self.ends) if unlikely else None
