"""Settings for sessions trained again or from elsewhere: `trainer.reuse`, `trainer.replay`."""

import re
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from seamlessflow.infra.settings import Section
from seamlessflow.infra.user_functions import OrUserFunction, is_user_function

OWN = "own"
"""Name of the pool with the run's own groups; every other pool reads other topics."""
ChoiceName = Literal["random", "newest"]
MixerName = Literal["rescue", "mix"]
_ARGUMENTS: Mapping[str, tuple[str, ...]] = {"rescue": ("take", "passes"), "mix": ("foreign",)}
"""Settings by mixer, for the mixers in the release."""
_POOL_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")


class ReuseSection(Section):
    """Groups from earlier steps that are trained again, beside a batch's new groups."""

    groups: int = Field(
        0, ge=0, description="Most such groups in each batch, beside run.groups_per_step; 0: none"
    )
    uses: int = Field(2, ge=2, description="How many steps may train a group, including the first")
    max_staleness: int = Field(
        8,
        ge=1,
        description="Largest staleness for these groups' tokens, in optimizer steps, instead of "
        "trainer.max_staleness; older tokens are masked, whatever trainer.on_stale says",
    )
    choice: ChoiceName = Field(
        "random", description="Which groups are chosen: random ones, or those trained last (newest)"
    )


class PoolSection(Section):
    """A pool of stored sessions."""

    prefix: str | None = Field(
        None,
        description="Prefix of the topics with the pool's sessions, such as an earlier run's or an "
        "import's; none: this run's own sessions, only for the pool `own`",
    )
    uses: int = Field(4, ge=1, description="How many steps may train a stored session")
    max_staleness: int | None = Field(
        None,
        ge=1,
        description="For the pool `own`: largest staleness for a stored token, in optimizer steps, "
        "instead of trainer.max_staleness; none: any",
    )
    keep: int = Field(
        10_000, ge=1, description="How many of the newest groups are remembered, by name and places"
    )


class ReplaySection(Section):
    """Stored sessions that are trained beside new ones, and the rule that chooses them."""

    name: OrUserFunction[MixerName] | None = Field(
        None,
        description="Rule that chooses stored sessions for a step. rescue: one success for a group "
        "in which all failed; mix: further groups; or your own module:function",
    )
    pools: dict[str, PoolSection] = Field(
        {}, description="Pools with stored sessions, by name; `own` has this run's groups"
    )
    take: Literal["newest", "random"] = Field(
        "newest", description="rescue: which one is taken if several successes are stored"
    )
    passes: float = Field(1.0, description="rescue: least return for a success")
    foreign: int = Field(
        4, ge=1, description="mix: stored groups in a batch, beside run.groups_per_step new ones"
    )

    @model_validator(mode="after")
    def _has_pools(self) -> Self:
        for name, pool in self.pools.items():
            if _POOL_NAME.fullmatch(name) is None:
                text = "small letters, digits, - and _, at most 40, a letter first"
                raise ValueError(f"pools: {name!r} must be {text}")
            if (name == OWN) != (pool.prefix is None):
                raise ValueError(
                    f"pools.{name}: the pool {OWN} has no prefix, and every other pool needs one"
                )
            if name != OWN and pool.max_staleness is not None:
                raise ValueError(
                    f"pools.{name}.max_staleness: versions of another log have no age in this run"
                )
        if self.name is not None and not self.pools:
            raise ValueError("pools: name at least one, such as own: {}")
        return self

    @property
    def arguments(self) -> dict[str, Any]:
        """Return the chosen mixer's settings as keyword arguments; none for a user's function."""
        if self.name is None or is_user_function(self.name):
            return {}
        return {setting: getattr(self, setting) for setting in _ARGUMENTS[self.name]}
