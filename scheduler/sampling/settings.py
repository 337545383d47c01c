"""Settings for choosing tasks. Importable without Kafka."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from seamlessflow.infra.settings import Section
from seamlessflow.infra.user_functions import OrUserFunction, UserFunctionName

SamplerName = Literal["vade", "target", "greso", "srpo", "trace", "explore"]
EXPLORE_SAMPLER: SamplerName = "explore"
"""The sampler whose groups are first tried on cheap workers."""
TermsName = Literal["by_success", "league"]
WeightName = Literal["squared", "variance", "linear", "capped"]
_READ: Mapping[str, tuple[str, ...]] = {
    "target": ("rate",),
    "srpo": ("return_after",),
    "trace": ("most", "predict"),
    "explore": ("samples", "best", "worst", "under_way"),
    "by_success": ("least", "exempt"),
    "league": ("weight", "groups"),
}
"""Settings that a method takes as keyword arguments, by method name."""


class _Method(Section):
    """A method with settings that only some method names read."""

    name: str | None = None

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The chosen method's settings, as keyword arguments."""
        return {setting: getattr(self, setting) for setting in _READ.get(self.name or "", ())}

    @model_validator(mode="after")
    def _all_read(self) -> Self:
        fields = type(self).model_fields
        for reader, settings in _READ.items():
            for setting in fields.keys() & set(settings) - self.arguments.keys():
                if getattr(self, setting) != fields[setting].default:
                    raise ValueError(f"only {reader} reads {setting}, but name is {self.name}")
        return self


class LiveForks(NamedTuple):
    """The settings for forks during a run."""

    share: Fraction = Fraction(0)
    """Largest share of samples that go on from ended sessions; 0: none do."""
    predict: str | None = None
    """The user's own function that predicts how a turn goes on."""


class SamplerSection(_Method):
    """The rule by which tasks are drawn, and the statistics that it sees."""

    name: OrUserFunction[SamplerName] | None = Field(
        None,
        description="Rule that draws tasks: vade, target, greso, srpo, trace, explore "
        "(docs/scheduling/samplers.md), or your own module:function; none: in order, as "
        "pacing.shuffle says",
    )
    by: str | None = Field(
        None,
        min_length=1,
        description="Metadata field that names a task's pool. A task that was not drawn yet counts "
        "with its pool's pass rate; none: level if all tasks have it, else the source",
    )
    candidates: int = Field(
        4096, ge=1, description="How many random tasks each choice looks at; fewer cost less time"
    )
    memory: float = Field(
        0.99, gt=0, le=1, description="Factor that shrinks all result counts at each trained step"
    )
    own_memory: float = Field(
        0.8,
        gt=0,
        le=1,
        description="Factor that shrinks a task's counts with each new result for that task",
    )
    passes: float = Field(
        1.0, allow_inf_nan=False, description="Least return with which a session passes"
    )
    rate: float = Field(0.5, gt=0, lt=1, description="target: the pass rate to aim at")
    return_after: int | None = Field(
        None,
        ge=1,
        description="srpo: how many passes over the tasks a task stays away once its whole group "
        "passed; none: all further passes",
    )
    most: int | None = Field(
        None, ge=2, description="trace: most samples in a group; none: twice run.group_size"
    )
    predict: UserFunctionName | None = Field(
        None,
        description="trace: module:function that returns a candidate's pass rate; none: from the "
        "task's statistics",
    )
    samples: int = Field(
        96, ge=2, description="explore: sessions for each task on workers with the tag cheap"
    )
    best: int = Field(
        12,
        ge=1,
        description="explore: how many sessions with the highest return are sampled again, on "
        "workers with the tag exact",
    )
    worst: int = Field(
        12,
        ge=1,
        description="explore: how many sessions with the lowest return are sampled again, likewise",
    )
    under_way: int = Field(
        8,
        ge=1,
        description="explore: most explored groups at once, including those that wait to be "
        "sampled again",
    )

    @property
    def explores(self) -> bool:
        """True if tasks are first tried on cheap workers."""
        return self.name == EXPLORE_SAMPLER


class TermsSection(_Method):
    """The rule by which a drawn task gets samples, turns and an opponent."""

    name: OrUserFunction[TermsName] | None = Field(
        None,
        description="Rule for samples, turns and opponent: by_success, league "
        "(docs/scheduling/samplers.md), or your own module:function; none: as the task or the run "
        "says",
    )
    least: int = Field(2, ge=1, description="by_success: samples for a task that always passes")
    exempt: float = Field(
        0.1, ge=0, le=1, description="by_success: share of groups that keep the run's turn limit"
    )
    weight: WeightName = Field(
        "squared",
        description="league: a past version's weight, from the win rate x against it: squared "
        "(1-x)^2, variance x(1-x), linear 1-x, capped min(0.5, 1-x)",
    )
    groups: int | None = Field(
        None,
        ge=1,
        description="league: groups in a row that play against the same drawn opponent; none: "
        "run.groups_per_step",
    )
