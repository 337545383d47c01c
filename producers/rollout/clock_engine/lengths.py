"""Lengths of the clock engine's answers: at each token the chance that it is the last one. Pure.

The chance is that of the configured log-normal distribution for an answer that has come so far, and
the draw depends on seed and offset alone. So an answer that goes on elsewhere, from its middle and
with another seed, is as long as one that stayed would have been.
"""

from math import erfc, log, sqrt

import numpy as np
import numpy.typing as npt

from infra.device_model.lengths import LengthsSection

_BLOCK = 1024
"""Offsets that are drawn at once."""


class AnswerLengths:
    """The distribution of the lengths."""

    def __init__(self, section: LengthsSection) -> None:
        longer = np.array([_longer(section, tokens) for tokens in range(section.most_tokens)])
        with np.errstate(divide="ignore", invalid="ignore"):
            chances = 1 - np.append(longer[1:], 0.0) / longer
        self._chances = np.where(longer > 0, chances, 1.0)

    def end(self, seed: int, offset: int) -> int:
        """Return the tokens of a completion that goes on from `offset`, its stop token included."""
        while offset < len(self._chances):
            chances = self._chances[offset : offset + _BLOCK]
            (found,) = np.nonzero(_uniform(seed, offset, len(chances)) < chances)
            if found.size:
                return offset + int(found[0]) + 1
            offset += len(chances)
        return offset + 1


def _longer(section: LengthsSection, tokens: int) -> float:
    """Return the probability of more tokens than these; a whole number of them is drawn."""
    if tokens == 0:
        return 1.0
    mean = log(section.turn_tokens) - section.spread**2 / 2
    beyond = log(tokens + 0.5) - mean
    if section.spread == 0:
        return float(beyond <= 0)
    return erfc(beyond / (section.spread * sqrt(2))) / 2


def _uniform(seed: int, offset: int, count: int) -> npt.NDArray[np.float64]:
    """Return a number below 1 for each offset: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    mixed = np.arange(offset + 1, offset + count + 1, dtype=np.uint64)
    mixed = mixed * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed = (mixed ^ (mixed >> np.uint64(31))) >> np.uint64(11)
    return mixed.astype(np.float64) / 2**53
