"""Settings for the rule that ends turns early, which manager and rollout worker share.

The rules themselves are in `producers/rollout/control`. Importable without torch.
"""

import json
from typing import Literal

from pydantic import ConfigDict, Field, JsonValue

from seamlessflow.infra.settings import Section
from seamlessflow.infra.user_functions import OrUserFunction

ControlName = Literal["confidence", "repetition", "budget"]


class ControlSection(Section):
    """The rule that ends turns early. Manager and worker have to agree on it."""

    name: OrUserFunction[ControlName] | None = Field(
        None,
        description="Rule: confidence, repetition, budget (docs/algorithms/control.md), or your "
        "own module:function; none: no turn is ended early",
    )
    settings: dict[str, JsonValue] = Field(
        default_factory=dict, description="The rule's settings: its keyword arguments"
    )
    exempt: float = Field(
        0.05,
        ge=0,
        le=1,
        description="Share of sessions that go on although the rule would end them, to show what "
        "it costs",
    )
    reward: float | None = Field(
        0, description="Return for a session that the rule ends; none: the session leaves its group"
    )
    record_top: int = Field(
        0,
        ge=0,
        le=20,
        description="How many of the likeliest tokens are recorded at each training token (8 bytes "
        "each), for seamlessflow stops; confidence needs 20",
    )

    @property
    def settings_json(self) -> bytes:
        """Return the rule's settings as canonical JSON."""
        return json.dumps(self.settings, sort_keys=True, separators=(",", ":")).encode()


class SharedRolloutSection(Section):
    """Rollout settings that the manager needs too; the worker adds its own."""

    model_config = ConfigDict(extra="ignore")

    control: ControlSection = Field(
        default_factory=ControlSection, description="When turns are ended early"
    )
