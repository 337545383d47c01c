"""The policy's settings: its initial model, its sampling, and which weights and tokens are trained.

Importable without torch.
"""

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from seamlessflow.infra.faults import suggestion
from seamlessflow.infra.rendering.settings import FROM_MODEL, RendererSettings
from seamlessflow.infra.settings import Section


class PolicySection(Section):
    """The initial model, and the settings that all processes follow for the policy."""

    model: Path = Field(
        Path("model"),
        description="Hugging Face directory with the initial weights and tokenizer, or a model on "
        "a hub, owner/name, with @revision for a branch, tag or commit (docs/models.md)",
    )
    renderer: RendererSettings = Field(
        RendererSettings(FROM_MODEL),
        description="How prompts are rendered: name (the model family), thinking_retention, "
        "options, control_tokens (see docs/renderers.md). A variable has them as JSON. Without a "
        "name: a renderer that writes the same prompts as the model's own template",
    )
    max_context: int = Field(
        32_768, ge=2, description="Most tokens of prompt and completion together"
    )
    temperature: float = Field(
        1.0,
        ge=0.01,
        le=2,
        description="Sampling temperature for all sessions; training uses the same distribution",
    )
    top_p: float = Field(
        1.0, gt=0, le=1, description="Nucleus (top-p) for all sessions; 1: off; see train_truncated"
    )
    top_k: int = Field(0, ge=0, description="Top-k for all sessions; 0: off; see train_truncated")
    train_truncated: bool = Field(
        False,
        description="Whether to train turns sampled with top_p or top_k. Engine and trainer then "
        "both have log-probs over the whole vocabulary (rollout.engine torch); false: these turns "
        "are masked",
    )
    max_tokens: int | None = Field(
        None,
        ge=1,
        description="Most tokens in a turn, even if its agent asks for more; none: up to the end "
        "of the context",
    )
    train_inexact: bool = Field(
        False, description="Whether to train inexact turns too, such as those with a grammar"
    )
    train_undelivered: bool = Field(
        False,
        description="Whether to train turns too whose client left before the answer, and which no "
        "retry or later turn took up",
    )
    siblings: Literal["continued", "all"] = Field(
        "continued",
        description="Which samples are trained if a prompt was repeated; continued: those that the "
        "agent went on from, else the latest (the agent regenerates); all: each (the agent votes, "
        "best-of-n)",
    )
    strictness: Literal["exact", "arguments", "content", "ids"] = Field(
        "arguments",
        description="How strictly messages in an agent's history must equal the sampled ones; ids: "
        "tool calls match by their ids, even if the agent changed the arguments",
    )

    @field_validator("renderer", mode="before")
    @classmethod
    def _read_renderer(cls, value: object) -> object:
        """Accept JSON text also, for older configuration files. Add a missing name."""
        read = json.loads(value) if isinstance(value, str) else value
        return {"name": FROM_MODEL, **read} if isinstance(read, dict) else read


class AdapterSection(Section):
    """A low-rank adapter (LoRA, https://arxiv.org/abs/2106.09685) for linear layers.

    It has no dropout: a step that is executed again must be the same.
    """

    rank: int = Field(
        0, ge=0, description="Rank of each layer's adapter; 0: none, all weights are trained"
    )
    alpha: int | None = Field(
        None, ge=1, description="The adapter's output is scaled by alpha / rank; none: 2 x rank"
    )
    targets: tuple[str, ...] = Field(
        (),
        description="Linear layers with an adapter, by the last part of their names, such as "
        "q_proj; none: all except the output layer",
    )

    @property
    def used(self) -> bool:
        """Return whether an adapter is trained."""
        return self.rank > 0

    @property
    def scale(self) -> float:
        """Return the factor that scales the adapter's addition; 0 without an adapter."""
        return self.chosen_alpha / self.rank if self.used else 0.0

    @property
    def chosen_alpha(self) -> int:
        """Return alpha, or its default if none is set."""
        return 2 * self.rank if self.alpha is None else self.alpha

    def unknown_targets(self, layers: Collection[str]) -> Iterator[str]:
        """Yield a message for each target that names no layer in the policy's model."""
        for target in self.targets if self.used else ():
            if target not in layers:
                names = ", ".join(sorted(layers))
                near = suggestion(target, layers)
                yield f"policy.model has no layers {target}, but {names}{near}"

    @field_validator("targets")
    @classmethod
    def _last_names(cls, targets: tuple[str, ...]) -> tuple[str, ...]:
        if wrong := next((name for name in targets if "." in name or not name), None):
            raise ValueError(f"{wrong!r} is not the last name of a layer, such as q_proj")
        return targets

    @model_validator(mode="after")
    def _rank_is_told(self) -> Self:
        """Refuse a forgotten rank. A further policy without the first policy's adapter sets 0."""
        if (self.alpha is not None or self.targets) and "rank" not in self.model_fields_set:
            raise ValueError("alpha and targets are of an adapter: set its rank, or 0 for none")
        return self


class AdapterSettings(Section):
    """The trainer settings that choose the trained weights."""

    adapter: AdapterSection = Field(default_factory=AdapterSection)

    @property
    def adapter_used(self) -> bool:
        """Return whether an adapter is trained."""
        return self.adapter.used
