"""Settings of the lengths of sampled turns, for the simulator and the clock engine alike."""

from pydantic import Field

from infra.settings import Section


class LengthsSection(Section):
    """A log-normal distribution of the tokens of a turn."""

    turn_tokens: float = Field(500, gt=0, description="Mean tokens sampled in a turn")
    spread: float = Field(
        0.8, ge=0, description="Standard deviation of the logarithm of a turn's sampled tokens"
    )
    most_tokens: int = Field(32_768, ge=1, description="Most tokens sampled in a turn")
