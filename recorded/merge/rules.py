"""Rules by which recorded sessions are merged again, where they differ from the recorded ones."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import orjson

from seamlessflow.schemas.records import Reward

Threads = Literal["recorded", "tokens"]
_AS_RECORDED: tuple[Any, ...] = (None, {}, "recorded")
Siblings = Literal["continued", "all"]


@dataclass(frozen=True, slots=True)
class MergeRules:
    """MergeRules for merging; None, empty and `recorded`: as the session's events say."""

    fold_version: int | None = None
    """Version of the fold's rules; docs/manager/rules.md has them."""
    train_inexact: bool | None = None
    """True: turns sampled from a bent distribution are trained."""
    train_undelivered: bool | None = None
    """True: turns whose answer did not reach the client are trained."""
    siblings: Siblings | None = None
    """Choice of the samples of one prompt that are trained."""
    purpose: Literal["train", "eval"] | None = None
    """`train`: sessions of evaluations are trained also; `eval`: none is."""
    threads: Threads = "recorded"
    """`tokens`: a turn continues the branch with which its prompt shares most tokens, whatever its
    messages are."""
    return_of: Mapping[str, float] = field(default_factory=dict)
    """Weight of rewards by name; the session's return is their weighted sum."""
    judged: Mapping[str, Reward] = field(default_factory=dict)
    """Further reward of a session, by its id; it replaces a recorded one of its name."""

    def each(self) -> Iterator[tuple[str, "MergeRules"]]:
        """Yield each rule that differs from the recorded ones by itself, with its name."""
        recorded = MergeRules()
        for name in self.__slots__:
            value = getattr(self, name)
            if value != getattr(recorded, name):
                yield _label(name, value), replace(recorded, **{name: value})

    def encode(self) -> str:
        """Return the rules that differ from the recorded ones as JSON, `{}` if none does."""
        changed = {name: value for name, value in asdict(self).items() if value not in _AS_RECORDED}
        return orjson.dumps(changed, option=orjson.OPT_SORT_KEYS).decode()


RECORDED = MergeRules()


def _label(name: str, value: Any) -> str:
    if name == "judged":
        return f"rewards of {len(value)} sessions"
    if isinstance(value, Mapping):
        value = " + ".join(f"{weight:g} {reward}" for reward, weight in value.items())
    return f"{name} = {value}"
