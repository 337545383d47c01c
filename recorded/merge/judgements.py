"""Rewards that a file gives to recorded sessions, such as those of another judge."""

from pathlib import Path

import orjson

from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.json_lines import json_lines
from seamlessflow.schemas.records import Reward

_OPTION = "--rewards"


def judgements(path: Path) -> dict[str, Reward]:
    """Return the reward of each session of a JSON-lines file.

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
