"""Lengths of sampled turns: their settings and draws, for the simulator and the clock engine alike.

A draw has two parts. A task's group of sessions shares the first, and the turn itself has the
second.
"""

from math import exp, sqrt

from pydantic import ConfigDict, Field

from seamlessflow.infra.settings import Section


class LengthsSection(Section):
    """A log-normal distribution of the tokens of a turn."""

    model_config = ConfigDict(allow_inf_nan=False)

    turn_tokens: float = Field(500, gt=0, description="Mean tokens sampled in a turn")
    spread: float = Field(
        0.8,
        ge=0,
        le=6,
        description="Standard deviation of the logarithm of a turn's sampled tokens",
    )
    most_tokens: int = Field(32_768, ge=1, description="Most tokens sampled in a turn")
    prompt_effect: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Share of that variance which is the task's, the same for its whole group",
    )


def drawn_tokens(section: LengthsSection, group: float, turn: float, factor: float = 1.0) -> int:
    """Return the tokens of a turn from two standard normal draws, its group's and its own.

    `factor` is that of the mean.
    """
    mixed = sqrt(section.prompt_effect) * group + sqrt(1 - section.prompt_effect) * turn
    tokens = log_normal(factor * section.turn_tokens, section.spread, mixed)
    return max(1, round(min(section.most_tokens, tokens)))


def log_normal(mean: float, spread: float, normal: float) -> float:
    """Return a log-normal draw of this mean from a standard normal one."""
    return mean * exp(spread * normal - spread * spread / 2)
