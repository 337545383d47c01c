"""Settings of the division of a model over ranks. Importable without torch."""

from typing import Protocol

from pydantic import Field, model_validator

from infra.settings import Section


class Parallel(Protocol):
    """The trainer's settings that the division of the model must fit to."""

    @property
    def ranks(self) -> int:
        """Return the devices of the gang."""

    @property
    def compute(self) -> str:
        """Return the element type of matrix products."""

    @property
    def critic_used(self) -> bool:
        """Return whether there is a critic."""

    @property
    def adapter_used(self) -> bool:
        """Return whether an adapter is trained."""

    @property
    def gradient_checkpointing(self) -> bool:
        """Return whether activations are computed again."""


class MegatronSection(Section):
    """Division of the model over ranks by Megatron-core."""

    tensor_parallel: int = Field(
        1,
        ge=1,
        description="Ranks that share each layer, which follow each other; trainer.ranks / this "
        "train other sequences each",
    )
    pipeline_parallel: int = Field(1, ge=1, description="Only 1: others are unproven")
    context_parallel: int = Field(1, ge=1, description="Only 1: others are unproven")
    expert_parallel: int = Field(1, ge=1, description="Only 1: others are unproven")

    @model_validator(mode="after")
    def _proven(self) -> "MegatronSection":
        for name in ("pipeline_parallel", "context_parallel", "expert_parallel"):
            if getattr(self, name) > 1:
                raise ValueError(
                    f"{name} is unproven with this trainer: set 1, and divide the model by "
                    "tensor_parallel (or trainer.backend = fsdp2)"
                )
        return self

    def check(self, trainer: Parallel) -> None:
        """Raise `ValueError` with what of a trainer's settings Megatron-core is not proven with."""
        if trainer.ranks % self.tensor_parallel:
            raise ValueError(
                f"ranks {trainer.ranks} must be a multiple of megatron.tensor_parallel "
                f"{self.tensor_parallel}"
            )
        for unproven, name in (
            (trainer.compute != "float32", f"dtype {trainer.compute}"),
            (trainer.critic_used, "a critic"),
            (trainer.adapter_used, "an adapter"),
            (trainer.gradient_checkpointing, "gradient_checkpointing"),
        ):
            if unproven:
                raise ValueError(
                    f"{name} is unproven with backend megatron: choose backend fsdp2 for it"
                )
