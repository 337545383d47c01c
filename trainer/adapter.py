"""Settings of an adapter that is trained in place of the model's own weights. Importable without
torch.
"""

from pydantic import Field, field_validator

from infra.settings import Section


class AdapterSection(Section):
    """A low-rank adapter (LoRA, https://arxiv.org/abs/2106.09685) of linear layers.

    It has no dropout: a step that is executed again must be the same.
    """

    rank: int = Field(
        0, ge=0, description="Rank of the adapter of each layer; 0: none, all weights are trained"
    )
    alpha: int | None = Field(
        None, ge=1, description="What it adds to a layer is scaled by alpha / rank; none: 2 x rank"
    )
    targets: tuple[str, ...] = Field(
        (),
        description="Last names of the linear layers that have one, as q_proj; none: all but the "
        "output layer",
    )

    @property
    def used(self) -> bool:
        """Return whether an adapter is trained."""
        return self.rank > 0

    @property
    def scale(self) -> float:
        """Return the factor of what the adapter adds; 0 without one."""
        return self.chosen_alpha / self.rank if self.used else 0.0

    @property
    def chosen_alpha(self) -> int:
        """Return alpha, also where none is set."""
        return 2 * self.rank if self.alpha is None else self.alpha

    @field_validator("targets")
    @classmethod
    def _last_names(cls, targets: tuple[str, ...]) -> tuple[str, ...]:
        if wrong := next((name for name in targets if "." in name or not name), None):
            raise ValueError(f"{wrong!r} is not the last name of a layer, such as q_proj")
        return targets


class AdapterSettings(Section):
    """The part of the trainer's settings that says what is trained."""

    adapter: AdapterSection = Field(default_factory=AdapterSection)
