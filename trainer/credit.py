"""Settings for credit: the tokens' advantages, and the models that they need."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, FiniteFloat, field_validator, model_validator

from seamlessflow.infra.settings import Section
from seamlessflow.infra.user_functions import OrUserFunction

FilterAction = Literal["count", "drop"]
Chaining = Literal["merged", "per_request"]
"""A session's chains: one for each branch of its tree, or one for each completion with its
prompt."""
EstimatorName = Literal[
    "grpo",
    "grpo_unscaled",
    "rloo",
    "maxrl",
    "grpo_batch",
    "gdpo",
    "turn",
    "session_and_turn",
    "reinforce_pp",
    "reinforce_pp_baseline",
    "gae",
    "turn_gae",
    "habc",
    "distill",
]
TOKEN_REWARDS: tuple[EstimatorName, ...] = (
    "reinforce_pp",
    "reinforce_pp_baseline",
    "gae",
    "turn_gae",
)
"""Estimators that use token rewards, such as `kl_penalty`."""
TURN_REWARDS: tuple[EstimatorName, ...] = ("turn", "session_and_turn", *TOKEN_REWARDS)
"""Estimators that use turn rewards."""

COMPARED: tuple[EstimatorName, ...] = (
    "grpo",
    "grpo_unscaled",
    "rloo",
    "maxrl",
    "grpo_batch",
    "gdpo",
)
"""Estimators that see only the differences between a group's returns."""

CRITICS: tuple[EstimatorName, ...] = ("gae", "turn_gae", "habc")
"""Estimators that need a critic."""

ONE_REWARD: Mapping[str, float] = {"reward": 1.0}
"""Reward weights in a run that names no rewards."""


class ReturnsSection(Section):
    """Returns, and how advantages follow from them."""

    discount: float = Field(
        1.0,
        ge=0,
        le=1,
        description="Factor for a turn's return, added to the previous turn's return",
    )
    session_weight: float = Field(
        1.0, ge=0, description="session_and_turn: weight for the session's advantage"
    )
    turn_weight: float = Field(
        1.0, ge=0, description="session_and_turn: weight for the advantage from turn rewards"
    )
    token_discount: float = Field(
        1.0,
        ge=0,
        le=1,
        description="gae, reinforce_pp: factor for a token's return, added to the previous token's",
    )
    trace: float = Field(
        0.95, ge=0, le=1, description="gae, turn_gae: lambda, between one step (0) and all (1)"
    )
    epsilon: float = Field(
        1e-6,
        ge=0,
        description="Added to a standard deviation before it divides (over a group's returns or a "
        "batch's advantages), so that small differences give small advantages",
    )
    deviation: Literal["population", "sample"] = Field(
        "population",
        description="Formula for the standard deviation: population divides by n; sample by n - 1, "
        "so its advantages are smaller by the root of (n - 1) / n",
    )
    restart_below: FiniteFloat | None = Field(
        None,
        description="turn, session_and_turn, filter spread: if a turn's reward is below this, its "
        "return is only that reward, and earlier turns get nothing from it; none: never",
    )
    entropy_scale: float = Field(
        0.0,
        ge=0,
        le=1,
        description="How strongly a session's advantages follow its mean entropy; 1: in proportion",
    )
    hybrid_scale: float = Field(
        0.0,
        ge=0,
        le=0.5,
        description="How strongly a token's advantage follows its entropy and the summed "
        "probability of the five likeliest tokens there, in standard deviations over the batch; "
        "0.1 as in ECHO",
    )


class CriticSection(Section):
    """The critic, for the advantages `gae`, `turn_gae` and `habc`."""

    kind: Literal["model", "head"] = Field(
        "model",
        description="model: a separate model with a value output; head: a value output on the "
        "policy's last hidden states, computed in the same pass",
    )
    model: Path | None = Field(
        None,
        description="kind model: the model it starts from, as in policy.model; none: the policy",
    )
    coefficient: float = Field(
        0.0,
        ge=0,
        description="kind head: weight for the value loss in the policy's gradient; 0: the value "
        "loss trains only the head",
    )
    lr: float = Field(
        1e-5, gt=0, description="Constant learning rate for the critic or head, not for the policy"
    )
    clip: float = Field(
        0.2,
        gt=0,
        description="gae, turn_gae: how far a value may move in a step before its gradient is cut "
        "off",
    )
    passes: FiniteFloat = Field(1.0, description="habc: least return for a success")
    warmup_steps: int = Field(
        500, ge=0, description="habc: first steps in which all turns in a success weigh 1"
    )

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if self.kind == "head" and self.model is not None:
            raise ValueError(
                "critic.model is a directory for kind model; kind head reads the policy's states"
            )
        if self.kind == "model" and self.coefficient:
            raise ValueError(
                "critic.coefficient passes the loss of values on to the policy, of which a critic "
                "of kind model has no part: set critic.kind head, or coefficient 0"
            )
        return self


Limit = Literal["context", "max_tokens", "turns", "time"]
SelectionName = Literal["extremes", "max_variance", "balanced"]
PairsName = Literal["extremes", "all"]


class OverlongSection(Section):
    """Long sessions: a punishment in their returns, and a mask for sessions that a limit ended."""

    length: int | None = Field(
        None,
        ge=1,
        description="From this many sampled tokens on, a session's return is lower by weight; "
        "none: returns do not depend on length",
    )
    cache: int | None = Field(
        None, ge=1, description="Tokens before length over which the punishment grows linearly"
    )
    weight: float = Field(1.0, gt=0, description="Largest punishment, taken from the return")
    masked: tuple[Limit, ...] = Field(
        (), description="Limits; a session that ended at one of them is masked from the loss"
    )

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if (self.length is None) != (self.cache is None):
            raise ValueError("length and cache must be set together")
        if self.length is not None and self.cache is not None and self.cache >= self.length:
            raise ValueError(f"cache ({self.cache}) must be less than length ({self.length})")
        return self


class SelectionSection(Section):
    """The rule that chooses which of a group's sessions are trained."""

    name: OrUserFunction[SelectionName] | None = Field(
        None,
        description="extremes: the best and worst sessions; max_variance, balanced: keep sessions "
        "(see trainer/data/selection.py), or your own module:function; none: all sessions",
    )
    best: int = Field(12, ge=0, description="extremes: how many sessions with the highest return")
    worst: int = Field(12, ge=0, description="extremes: how many sessions with the lowest return")
    keep: int = Field(8, ge=1, description="max_variance, balanced: sessions that each group keeps")
    baseline: Literal["selected", "all"] = Field(
        "selected", description="Sessions whose returns are compared for advantages"
    )

    @model_validator(mode="after")
    def _trains_some(self) -> Self:
        if self.name == "extremes" and not self.best + self.worst:
            raise ValueError("best and worst are both 0, so no session would be trained")
        return self


class OpponentsSection(Section):
    """Opponents: the policy's earlier weights, with which a pair loss compares the present ones."""

    every: int = Field(
        20, ge=1, description="Steps after which, each time, the oldest opponent becomes the policy"
    )
    most: int = Field(2, ge=1, le=4, description="Opponents, each a model as large as the policy")
    weights: tuple[Annotated[FiniteFloat, Field(ge=0)], ...] = Field(
        (),
        description="Each opponent's weight, the newest first; they are divided by their sum; "
        "none: all count alike",
    )

    @model_validator(mode="after")
    def _weighs_all(self) -> Self:
        if self.weights and (len(self.weights) != self.most or not any(self.weights)):
            raise ValueError(f"weights needs {self.most} numbers (most), and one above 0")
        return self


class PairsSection(Section):
    """Pairs of a group's sessions: the policy learns to prefer one session in each pair."""

    name: OrUserFunction[PairsName] = Field(
        "extremes",
        description="extremes: the best session against the worst; all: each pass against each "
        "failure (see trainer/data/pairs.py), or your own module:function",
    )
    beta: float = Field(
        0.1, gt=0, description="pairs_logistic: how soon a margin over the reference is enough"
    )
    eta: float = Field(
        0.0075, gt=0, description="pairs_squared: each pair's margin is pulled to 1 / (2 eta)"
    )
    reference_share: float = Field(
        1 / 3,
        ge=0,
        le=1,
        description="pairs_squared: weight for trainer.reference in the margin; opponents have the "
        "rest",
    )
    opponents: OpponentsSection = Field(default_factory=OpponentsSection)


class CreditSettings(Section):
    """The trainer settings that decide the advantages."""

    advantage: OrUserFunction[EstimatorName] = Field(
        "grpo",
        description="Estimator for advantages (see trainer/data/advantages.py), or your own "
        "module:function (docs/algorithms/own-functions.md)",
    )
    returns: ReturnsSection = Field(default_factory=ReturnsSection)
    critic: CriticSection = Field(default_factory=CriticSection)
    overlong: OverlongSection = Field(default_factory=OverlongSection)
    selection: SelectionSection = Field(default_factory=SelectionSection)
    pairs: PairsSection = Field(default_factory=PairsSection)
    spread_over: float = Field(
        0.3,
        ge=0,
        description="Filter spread: a group is kept if its first turns' returns have a standard "
        "deviation above this",
    )
    rewards: dict[str, FiniteFloat] = Field(
        default_factory=lambda: dict(ONE_REWARD),
        description="Each named reward's weight in a session's return and in a turn's reward. A "
        "session must have every reward whose weight is not 0",
    )
    reference: Path | None = Field(
        None,
        description="Model that kl_penalty, loss.kl and pair losses compare with; none: "
        "policy.model",
    )
    reference_every: int | None = Field(
        None,
        ge=1,
        description="Trained steps after which the reference becomes the present policy, each "
        "time; none: it stays",
    )
    kl_penalty: float = Field(
        0.0,
        ge=0,
        description="Weight for (log-prob - reference's log-prob), which is subtracted from a "
        "token's reward; for the advantages reinforce_pp, reinforce_pp_baseline, gae, turn_gae",
    )
    teacher: Path | None = Field(None, description="distill: the teacher's model, as policy.model")

    @field_validator("rewards")
    @classmethod
    def _some_count(cls, rewards: dict[str, float]) -> dict[str, float]:
        if not any(rewards.values()):
            raise ValueError("no reward has a weight other than 0, so all sessions would be equal")
        if not all(name.strip() for name in rewards):
            raise ValueError("a reward has no name")
        return rewards

    @model_validator(mode="after")
    def _credits(self) -> Self:
        if self.kl_penalty and self.advantage not in TOKEN_REWARDS:
            raise ValueError(
                f"kl_penalty is a part of the rewards of tokens, and advantage {self.advantage} "
                f"sees none: use one of {', '.join(TOKEN_REWARDS)}"
            )
        weights = self.returns.session_weight, self.returns.turn_weight
        if self.advantage == "session_and_turn" and not any(weights):
            raise ValueError(
                "returns.session_weight and returns.turn_weight are both 0, so advantage "
                "session_and_turn is 0 for all tokens"
            )
        if self.advantage == "distill" and self.teacher is None:
            raise ValueError("advantage distill needs teacher, a model directory")
        if self.advantage == "distill" and self.overlong.length is not None:
            raise ValueError("overlong.length changes returns, and advantage distill sees none")
        return self

    @model_validator(mode="after")
    def _compares(self) -> Self:
        if self.advantage == "gdpo" and self.overlong.length is not None:
            raise ValueError(
                "overlong.length changes the sum of rewards, and advantage gdpo normalises each by "
                "itself: let the agent give a reward for length and name it in rewards"
            )
        negative = [name for name, weight in self.rewards.items() if weight < 0]
        if self.advantage == "maxrl" and (negative or self.overlong.length is not None):
            named = f"rewards.{negative[0]}" if negative else "overlong.length"
            raise ValueError(
                f"advantage maxrl needs returns of at least 0, and {named} lessens them"
            )
        return self

    @property
    def critic_used(self) -> bool:
        """Return whether token values are needed."""
        return self.advantage in CRITICS

    @property
    def reward_weights(self) -> Mapping[str, float]:
        """Return the weight of each reward that counts, by name."""
        return {name: weight for name, weight in self.rewards.items() if weight}
