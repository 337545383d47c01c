"""A loss's settings: surrogate, correction, masks, aggregation and entropy bonus; presets.

Masks say which tokens leave the loss because the policy has moved away from them. Importable
without torch or numpy.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, Self

from pydantic import Field, JsonValue, ValidationInfo, field_validator, model_validator

from seamlessflow.infra.settings import Section
from seamlessflow.infra.user_functions import (
    OrUserFunction,
    UserFunctionName,
    is_user_function,
    refuse_unnamed,
)

Level = Literal["token", "turn", "session"]
Unit = Literal["token", "turn", "session", "group"]
"""Trained tokens that a loss looks at together, so they must be in one micro-batch."""
LossName = Literal["ppo_clip", "tis", "icepop"]
SurrogateName = Literal[
    "ppo_clip",
    "gspo",
    "cispo",
    "sapo",
    "dppo",
    "policy_gradient",
    "cloning",
    "pairs_squared",
    "pairs_logistic",
]
CorrectionName = Literal["none", "tis", "icepop"]
Divergence = Literal["tv", "kl"]
AggregationName = Literal["token_mean", "sequence_mean", "constant"]
PRESETS: Mapping[str, tuple[SurrogateName, CorrectionName]] = {
    "ppo_clip": ("ppo_clip", "none"),
    "tis": ("cispo", "none"),
    "icepop": ("policy_gradient", "icepop"),
}
"""Surrogate and correction that each `LossName` stands for."""
OF_PAIRS: tuple[SurrogateName, ...] = ("pairs_squared", "pairs_logistic")
"""Surrogates that compare session pairs (`trainer.pairs`)."""
DUAL_CLIP = 3.0
"""`dual_clip` if it is not set, as in verl and slime's examples."""
_OF_SURROGATE: Mapping[str, SurrogateName] = {
    "dual_clip": "ppo_clip",
    "ratio_level": "gspo",
    "gate_positive": "sapo",
    "gate_negative": "sapo",
    "divergence": "dppo",
    "divergence_bound": "dppo",
}
"""The only surrogate that reads each setting; with another surrogate the setting is refused."""


class _MaskSection(Section):
    """A mask that is on if it has a bound."""

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
    """Mask for turns or sessions whose geometric mean ratio is far from 1."""

    low: float | None = Field(
        None, gt=0, lt=1, description="Least mean that is trained; none: no bound"
    )
    high: float | None = Field(
        None, gt=1, description="Largest mean that is trained; none: no bound"
    )
    level: Literal["turn", "session"] = Field(
        "session", description="Unit that has one mean and leaves the loss as a whole"
    )


class OutlierMaskSection(_MaskSection):
    """Mask for tokens whose own ratio is far from 1, alone or with their whole turn or session."""

    low: float | None = Field(
        None, gt=0, lt=1, description="Ratio below which a token is an outlier; none: no bound"
    )
    high: float | None = Field(
        None, gt=1, description="Ratio above which a token is an outlier; none: no bound"
    )
    level: Level = Field(
        "session", description="What leaves with an outlier: only the token, its turn or session"
    )


class OffPolicyMaskSection(_MaskSection):
    """Mask for negative-advantage tokens in turns or sessions that the policy moved away from."""

    most: float | None = Field(
        None,
        gt=0,
        description="Tokens with a negative advantage leave the loss if their mean log (engine's "
        "probability / policy's) exceeds this, in nats a token; none: no mask",
    )
    level: Literal["turn", "session"] = Field(
        "session", description="Unit that has one mean and leaves the loss as a whole"
    )


class MasksSection(Section):
    """Masks by the policy's ratio to the engine's (see trainer/backends/losses)."""

    geometric_mean: MeanMaskSection = Field(default_factory=MeanMaskSection)
    outlier: OutlierMaskSection = Field(default_factory=OutlierMaskSection)
    off_policy: OffPolicyMaskSection = Field(default_factory=OffPolicyMaskSection)

    def levels(self) -> Iterator[Level]:
        """Yield each used mask's level: the tokens that it looks at together."""
        for section in (self.geometric_mean, self.outlier, self.off_policy):
            if section.used:
                yield section.level


class LossSection(Section):
    """A step's loss: each trained token's loss, and the sum over tokens."""

    name: LossName | None = Field(
        None,
        description="One name for surrogate and correction: ppo_clip, tis (cispo), icepop "
        "(policy_gradient with the correction icepop); none: as surrogate and correction say",
    )
    surrogate: OrUserFunction[SurrogateName] | None = Field(
        None,
        description="A token's loss (see trainer/backends/losses/surrogates.py), or your own "
        "module:function; none: from name, or ppo_clip",
    )
    clip_low: float = Field(
        0.2, ge=0, lt=1, description="ppo_clip, gspo: how far below 1 a ratio keeps its gradient"
    )
    clip_high: float = Field(
        0.28, ge=0, description="ppo_clip, gspo: how far above 1 a ratio keeps its gradient"
    )
    dual_clip: float | None = Field(
        None,
        ge=0,
        description="ppo_clip: a token with a negative advantage has no gradient if its ratio is "
        "above this, which must be more than 1; none: 3; 0: no bound",
    )
    ratio_level: Literal["turn", "session"] | None = Field(
        None, description="gspo: which tokens share one ratio; none: session"
    )
    gate_positive: float = Field(
        1.0,
        gt=0,
        description="sapo: temperature for the gate of tokens with a positive advantage; a larger "
        "one closes it sooner",
    )
    gate_negative: float = Field(
        1.05, gt=0, description="sapo: the same for tokens with a negative advantage"
    )
    divergence: Divergence = Field(
        "tv", description="dppo: total variation, or KL, between a token and all other tokens"
    )
    divergence_bound: float = Field(
        0.2, gt=0, description="dppo: divergence above which a token loses its gradient"
    )
    correction: OrUserFunction[CorrectionName] | None = Field(
        None,
        description="Weight for the difference between engine and old policy (see "
        "trainer/backends/losses/corrections.py), or your own module:function; none: from name, or "
        "no correction",
    )
    correction_level: Literal["token", "turn", "session"] = Field(
        "token", description="tis: which tokens share one weight"
    )
    cap: float = Field(
        2.0,
        gt=1,
        description="Largest ratio; cispo, tis: a larger one is cut to it, icepop: it leaves the "
        "loss",
    )
    floor: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="icepop: tokens with a lower ratio leave the loss; none: 1 / cap. The paper "
        "has 0.5, and 5 for cap",
    )
    masks: MasksSection = Field(default_factory=MasksSection)
    entropy: float = Field(
        0.0, ge=0, description="Weight with which the loss rewards the policy's entropy"
    )
    kl: float = Field(
        0.0, ge=0, description="Weight for the divergence from trainer.reference in the loss"
    )
    kl_estimator: Literal["k2", "k3"] = Field(
        "k3", description="Estimator for that divergence (see trainer/backends/losses/loss.py)"
    )
    kl_weighted: bool = Field(
        False,
        description="k3: whether to multiply that divergence by the ratio between policy and "
        "engine, so that its mean gradient is right for older tokens too",
    )
    aggregation: OrUserFunction[AggregationName] = Field(
        "token_mean",
        description="How a step's token losses are summed (see trainer/data/aggregations.py), or "
        "your own module:function",
    )
    functions: dict[UserFunctionName, dict[str, JsonValue]] = Field(
        {},
        description="Settings for your own functions in trainer.loss.surrogate, correction and "
        "aggregation: their keyword arguments, by module:function",
    )
    constant_length: int | None = Field(
        None,
        ge=1,
        validate_default=True,
        description="constant: token count that divides a session's sum, such as the most that it "
        "may have",
    )

    @field_validator("kl_estimator", mode="before")
    @classmethod
    def _estimated(cls, value: object) -> object:
        if value == "k1":
            raise ValueError(
                "k1 has in a loss the mean gradient 0: use k2 or k3, or trainer.kl_penalty, which "
                "takes k1 from the rewards"
            )
        return value

    @field_validator("surrogate", "correction")
    @classmethod
    def _as_named(cls, value: str | None, info: ValidationInfo) -> str | None:
        preset = PRESETS.get(info.data.get("name") or "")
        if preset and value is not None:
            meant = preset[0] if info.field_name == "surrogate" else preset[1]
            if value != meant:
                named = f"name {info.data['name']} stands for {info.field_name} {meant}"
                raise ValueError(f"{named}, not {value}: set one of them only")
        return value

    @field_validator("correction")
    @classmethod
    def _correctable(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value not in (None, "none"):
            _refuse_without_ratio(value, info.data)
        return value

    @field_validator(*_OF_SURROGATE)
    @classmethod
    def _of_surrogate(cls, value: Any, info: ValidationInfo) -> Any:
        name = info.field_name or ""
        needed = _OF_SURROGATE[name]
        surrogate = _surrogate(info.data)
        if value != cls.model_fields[name].default and surrogate != needed:
            raise ValueError(f"needs surrogate {needed}, not {surrogate}")
        return value

    @field_validator("dual_clip")
    @classmethod
    def _bounds_one_side(cls, value: float | None) -> float | None:
        if value is not None and 0 < value <= 1:
            raise ValueError("a ratio of 1 is no change, so it is above 1; 0 sets no bound")
        return value

    @field_validator("floor")
    @classmethod
    def _has_floor(cls, value: float | None, info: ValidationInfo) -> float | None:
        if value is not None and (correction := _correction(info.data)) != "icepop":
            raise ValueError(f"needs correction icepop, not {correction}")
        return value

    @field_validator("masks")
    @classmethod
    def _maskable(cls, masks: MasksSection, info: ValidationInfo) -> MasksSection:
        if any(masks.levels()):
            _refuse_without_ratio("a mask", info.data)
        return masks

    @field_validator("kl_weighted")
    @classmethod
    def _weighs_k3(cls, value: bool, info: ValidationInfo) -> bool:
        if value and not info.data.get("kl"):
            raise ValueError("weighs the divergence from the reference, and kl is 0: set kl")
        if value and info.data.get("kl_estimator") == "k2":
            raise ValueError("needs kl_estimator k3: weighed, k2 is no estimate of the divergence")
        return value

    @field_validator("correction_level")
    @classmethod
    def _of_correction(cls, value: str, info: ValidationInfo) -> str:
        if value != "token" and (correction := _correction(info.data)) != "tis":
            raise ValueError(f"{value} needs correction tis, not {correction}")
        return value

    @field_validator("aggregation")
    @classmethod
    def _adds_tokens(cls, value: str, info: ValidationInfo) -> str:
        surrogate = _surrogate(info.data)
        if value != "token_mean" and surrogate in OF_PAIRS:
            raise ValueError(
                f"surrogate {surrogate} is a mean over pairs of sessions: leave it out"
            )
        return value

    @field_validator("constant_length")
    @classmethod
    def _of_aggregation(cls, value: int | None, info: ValidationInfo) -> int | None:
        constant = info.data.get("aggregation") == "constant"
        if constant and value is None:
            raise ValueError("aggregation constant needs it")
        if value is not None and not constant and "aggregation" in info.data:
            raise ValueError(f"needs aggregation constant, not {info.data['aggregation']}")
        return value

    @model_validator(mode="after")
    def _names_functions(self) -> Self:
        named = self.user_functions.values()
        refuse_unnamed(self.functions, named, "surrogate, correction or aggregation")
        return self

    @property
    def user_functions(self) -> Mapping[str, str]:
        """Return the user's own functions that the loss uses, by part, such as `surrogate`."""
        parts = {
            "surrogate": self.chosen_surrogate,
            "correction": self.chosen_correction,
            "aggregation": self.aggregation,
        }
        return {part: name for part, name in parts.items() if is_user_function(name)}

    @property
    def chosen_surrogate(self) -> str:
        """Return the surrogate that the settings or `name` choose."""
        return _surrogate(dict(self))

    @property
    def chosen_correction(self) -> str:
        """Return the correction that the settings or `name` choose."""
        return _correction(dict(self))

    @property
    def chosen(self) -> str:
        """Return one name for surrogate and correction, however they were set."""
        both = self.chosen_surrogate, self.chosen_correction
        for name, preset in PRESETS.items():
            if preset == both:
                return name
        return both[0] if both[1] == "none" else "+".join(both)

    @property
    def of_pairs(self) -> bool:
        """Return whether the loss compares session pairs."""
        return self.chosen_surrogate in OF_PAIRS

    @property
    def dual_bound(self) -> float | None:
        """Return `dual_clip`'s ratio, or None if there is no bound."""
        return (DUAL_CLIP if self.dual_clip is None else self.dual_clip) or None

    @property
    def regularised(self) -> bool:
        """Return whether the loss has a term for each token, whatever its advantage."""
        return self.entropy > 0 or self.kl > 0

    @property
    def unit(self) -> Unit:
        """Return the unit whose tokens must all be in one micro-batch."""
        levels: set[str] = {self.correction_level, *self.masks.levels()}
        if self.chosen_surrogate == "gspo":
            levels.add(self.ratio_level or "session")
        if self.user_functions.keys() & {"surrogate", "correction"}:
            levels.add("session")  # it may look at any tokens of a session
        if "session" in levels:
            return "session"
        return "turn" if "turn" in levels else "token"


def _surrogate(data: Mapping[str, Any]) -> str:
    surrogate: str | None = data.get("surrogate")
    return surrogate or PRESETS.get(data.get("name") or "", PRESETS["ppo_clip"])[0]


def _refuse_without_ratio(what: str | None, data: Mapping[str, Any]) -> None:
    if (surrogate := _surrogate(data)) in ("cloning", *OF_PAIRS):
        raise ValueError(f"{what} has no meaning with surrogate {surrogate}, which has no ratio")


def _correction(data: Mapping[str, Any]) -> str:
    correction: str | None = data.get("correction")
    return correction or PRESETS.get(data.get("name") or "", PRESETS["ppo_clip"])[1]
