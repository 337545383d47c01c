"""Settings of a run's further policies, beside the first one. Importable without torch.

Each has its own workers, or shared ones. It is trained by its own trainer, or frozen: then workers
serve it, and no trainer changes it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import Discriminator, Field, Tag, model_validator

from seamlessflow.infra.settings import PastSection, Section
from seamlessflow.trainer.policy import PolicySection
from seamlessflow.trainer.settings import TrainerSection


def _kind(value: object) -> str:
    return "past" if isinstance(value, Mapping | PastSection) else "directory"


FrozenWeights = Annotated[
    Annotated[Path, Tag("directory")] | Annotated[PastSection, Tag("past")], Discriminator(_kind)
]
"""A frozen policy's model: a directory, or another policy's past versions."""


class FurtherPolicySection(Section):
    """A further policy that answers in the same sessions: trained by its own trainer, or frozen.

    No trainer changes a frozen policy. Its sections say only what differs from the run's.
    """

    frozen: FrozenWeights | None = Field(
        None,
        description="Directory with a model that is served and not trained, or `{of: POLICY, "
        "every: 20}` for past versions of one of the run's policies; none: it is trained",
    )
    policy: PolicySection = Field(
        default_factory=PolicySection, description="Settings that differ from the section policy"
    )
    trainer: TrainerSection = Field(
        default_factory=TrainerSection, description="Settings that differ from the section trainer"
    )

    @model_validator(mode="after")
    def _only_what_is_read(self) -> Self:
        if self.frozen is None:
            return self
        if "trainer" in self.model_fields_set:
            raise ValueError("frozen: no trainer reads the section trainer, so leave it out")
        if isinstance(self.frozen, PastSection) and "policy" in self.model_fields_set:
            text = f"it is sampled as {self.frozen.policy} is: leave the section policy out"
            raise ValueError(f"frozen.of: {text}")
        if "model" in self.policy.model_fields_set:
            raise ValueError("frozen: names the model, so leave policy.model out")
        return self
