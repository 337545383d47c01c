"""Settings of reuse: groups of earlier steps that later steps train again, by plan."""

from typing import Literal

from pydantic import Field

from seamlessflow.infra.settings import Section

ChoiceName = Literal["random", "newest"]


class ReuseSection(Section):
    """Groups of earlier steps that are trained again beside the new ones of a batch."""

    groups: int = Field(
        0, ge=0, description="Most of them in each batch, beside run.groups_per_step; 0: none"
    )
    uses: int = Field(2, ge=2, description="Steps that may train a group, the first one included")
    max_staleness: int = Field(
        8,
        ge=1,
        description="Largest staleness of their tokens, in optimizer steps, in place of "
        "trainer.max_staleness; older ones are masked, whatever trainer.on_stale says",
    )
    choice: ChoiceName = Field(
        "random", description="random, or those that were trained last (newest)"
    )
