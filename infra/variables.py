"""Environment variables: the setting that each one sets, and those that only look like settings.
Pure.

Processes may share one environment, so a variable is right if any of them reads it. A name without
`__` may belong to another program; it is a mistake only if it nearly spells a section.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from json import JSONDecodeError

ENV_PREFIX = "SEAMLESSFLOW_"
SettingPath = tuple[int | str, ...]
"""Place of a setting: its sections and its field by name, places in lists by number."""

SECTIONS = (
    "AGENTS",
    "BROKER",
    "DATA_DIR",
    "DEVICE_MODEL",
    "EVALUATION",
    "GATEWAY",
    "KAFKA",
    "MANAGER",
    "NODE",
    "OUT",
    "PACING",
    "POLICIES",
    "POLICY",
    "RESTARTS",
    "REWARDS",
    "ROLLOUT",
    "RUN",
    "SCHEDULER",
    "SHARE",
    "SIMULATION",
    "START_TIMEOUT_S",
    "TELEMETRY",
    "TRAINER",
    "WEIGHTS",
    "WORKERS",
)
"""Names that may follow the prefix: those of all processes and of a run's configuration."""

_LIKE = 0.6
_NEARLY = 0.85


def misspelt(names: Iterable[str], prefix: str) -> Sequence[str]:
    """Return an error line for each variable that no process reads, with the nearest known one."""
    wrong = {name: _nearest(name.upper().removeprefix(prefix)) for name in _ours(names, prefix)}
    return [
        f"  {name}: no process reads it" + (f"; did you mean {prefix}{meant}?" if meant else "")
        for name, meant in wrong.items()
        if meant is not None
    ]


def variable(path: SettingPath) -> str:
    """Return the name of the environment variable of a setting."""
    return ENV_PREFIX + "__".join(str(part).upper() for part in path)


def place_in(environment: Mapping[str, str], path: SettingPath) -> SettingPath | None:
    """Return the variable that sets a setting, then the place in its JSON; None if none does."""
    names = {name.upper(): name for name in environment}
    for length in range(len(path), 0, -1):
        name = names.get(variable(path[:length]))
        if name is not None and _holds(environment[name], path[length:]):
            return (name, *path[length:])
    return None


def _ours(names: Iterable[str], prefix: str) -> Sequence[str]:
    return sorted(name for name in names if name.upper().startswith(prefix))


def _nearest(name: str) -> str | None:
    """Return the nearest known name, empty if none is near, or None if the name is right."""
    section, nested, field = name.partition("__")
    if section in SECTIONS:
        return None
    near = get_close_matches(section, SECTIONS, 1, _LIKE if nested else _NEARLY)
    if not near:
        return "" if nested else None
    return f"{near[0]}{nested}{field}"


def _holds(text: str, path: SettingPath) -> bool:
    """Return whether a variable gives the setting at `path`. Objects are merged, lists are not."""
    try:
        value = json.loads(text)
    except JSONDecodeError:
        return True
    for part in path:
        if not isinstance(value, dict):
            return True
        if part not in value:
            return False
        value = value[part]
    return True
