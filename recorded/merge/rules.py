"""Rules by which recorded sessions are merged again, as far as they differ from the recorded ones.

A file can give further rewards, for example another judge's.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import orjson

from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.json_lines import json_lines
from seamlessflow.schemas.records import Reward

ThreadsRule = Literal["recorded", "tokens"]
SiblingsRule = Literal["continued", "all"]
_AS_RECORDED: tuple[Any, ...] = (None, {}, "recorded")
_OPTION = "--rewards"
ALL = "all together"
"""Label for the comparison under all differing rules, besides one for each rule."""


@dataclass(frozen=True, slots=True)
class MergeRules:
    """Rules for merging; None, empty and `recorded`: as the session's events say."""

    fold_version: int | None = None
    """Version of the fold's rules, which docs/manager/rules.md explains."""
    train_inexact: bool | None = None
    """True: turns sampled from a bent distribution are trained."""
    train_undelivered: bool | None = None
    """True: turns whose answer did not reach the client are trained."""
    siblings: SiblingsRule | None = None
    """Choice among one prompt's samples: those that are trained."""
    purpose: Literal["train", "eval"] | None = None
    """`train`: evaluation sessions are also trained; `eval`: no session is trained."""
    threads: ThreadsRule = "recorded"
    """`tokens`: a turn continues the branch that shares the most tokens with its prompt, whatever
    its messages are."""
    return_of: Mapping[str, float] = field(default_factory=dict)
    """Reward weights by name; the session's return is the weighted sum."""
    judged: Mapping[str, Reward] = field(default_factory=dict)
    """A session's further reward, by session id; it replaces a recorded one with the same name."""
    late: Mapping[str, tuple[Reward, ...]] = field(default_factory=dict)
    """By session id, judges' rewards that the session lacks since they came after its end."""

    def each(self) -> Iterator[tuple[str, "MergeRules"]]:
        """Yield each rule that differs from the recorded ones, by itself and with its name."""
        recorded = MergeRules()
        for name in self.__slots__:
            value = getattr(self, name)
            if value != getattr(recorded, name):
                yield _label(name, value), replace(recorded, **{name: value})

    def encode(self) -> str:
        """Return the rules that differ from the recorded ones as JSON; `{}` if none does."""
        changed = {name: value for name, value in asdict(self).items() if value not in _AS_RECORDED}
        return orjson.dumps(changed, option=orjson.OPT_SORT_KEYS).decode()


RECORDED = MergeRules()


def judgements(path: Path) -> dict[str, Reward]:
    """Return the sessions' rewards in a JSON-lines file.

    A line has `session_id`, `value`, and may have `name`. Raises `SettingsRejected` with the line.
    """
    rewards: dict[str, Reward] = {}
    try:
        with path.open("rb") as file:
            lines = list(json_lines(file))
    except OSError as error:
        raise SettingsRejected(_OPTION, str(error)) from error
    for line in lines:
        place = f"{path}, line {line.number}"
        session_id, reward = _judgement(place, line.content)
        if session_id in rewards:
            raise SettingsRejected(_OPTION, f"{place}: {session_id} again")
        rewards[session_id] = reward
    return rewards


def _label(name: str, value: Any) -> str:
    if name in ("judged", "late"):
        return f"{'late ' if name == 'late' else ''}rewards of {len(value)} sessions"
    if isinstance(value, Mapping):
        value = " + ".join(f"{weight:g} {reward}" for reward, weight in value.items())
    return f"{name} = {value}"


def _judgement(place: str, line: bytes) -> tuple[str, Reward]:
    try:
        read = orjson.loads(line)
        value = read["value"]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError
        name = read.get("name", "reward")
        reward = Reward(name=str(name), value=float(value), source="replay")
        return str(read["session_id"]), reward
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        reason = f'{place} is not like {{"session_id": "g.0.0", "value": 1.0}}'
        raise SettingsRejected(_OPTION, reason) from None
