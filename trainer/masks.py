"""Settings of masks: which tokens leave the loss because the policy has moved away from them.

Importable without torch or numpy.
"""

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import Field, model_validator

from seamlessflow.infra.settings import Section

Level = Literal["token", "turn", "session"]


class _MaskSection(Section):
    """A mask, which its bounds turn on."""

    @property
    def used(self) -> bool:
        """Return whether a bound is set."""
        values = self.model_dump(exclude={"level"}).values()
        return any(value is not None for value in values)

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.model_dump(exclude_defaults=True).keys() == {"level"}:
            bounds = " or ".join(name for name in type(self).model_fields if name != "level")
            raise ValueError(f"level has no effect without a bound: set {bounds}")
        return self


class MeanMaskSection(_MaskSection):
    """Turns or sessions whose ratios are far from 1 in their geometric mean."""

    low: float | None = Field(
        None, gt=0, lt=1, description="Least mean of one that is trained; none: no bound"
    )
    high: float | None = Field(
        None, gt=1, description="Largest mean of one that is trained; none: no bound"
    )
    level: Literal["turn", "session"] = Field(
        "session", description="The tokens that have one mean, and leave together"
    )


class OutlierMaskSection(_MaskSection):
    """Tokens whose own ratio is far from 1, alone or with all of their turn or session."""

    low: float | None = Field(
        None, gt=0, lt=1, description="Least ratio of a token that is no outlier; none: no bound"
    )
    high: float | None = Field(
        None, gt=1, description="Largest ratio of a token that is no outlier; none: no bound"
    )
    level: Level = Field(
        "session", description="What leaves with an outlier: the token alone, its turn or session"
    )


class OffPolicyMaskSection(_MaskSection):
    """Turns or sessions with a negative advantage from which the policy has moved away."""

    most: float | None = Field(
        None,
        gt=0,
        description="Largest mean of log (engine's probability / policy's), in nats a token, at "
        "which tokens with a negative advantage are trained; none: no mask",
    )
    level: Literal["turn", "session"] = Field(
        "session", description="The tokens that have one mean, and leave together"
    )


class MasksSection(Section):
    """Masks by the ratio of the policy to the engine's (see trainer/backends/losses/masks.py)."""

    geometric_mean: MeanMaskSection = Field(default_factory=MeanMaskSection)
    outlier: OutlierMaskSection = Field(default_factory=OutlierMaskSection)
    off_policy: OffPolicyMaskSection = Field(default_factory=OffPolicyMaskSection)

    def levels(self) -> Iterator[Level]:
        """Yield the tokens that each mask looks at together."""
        for section in (self.geometric_mean, self.outlier, self.off_policy):
            if section.used:
                yield section.level
