"""Environment variables: the setting that each one sets, and names that only look like settings.
Pure.

Processes may share one environment, so a variable is right if any of them reads it. A name without
`__` may belong to another program; it is a mistake only if it nearly spells a section. True and
false are refused where a number belongs: pydantic takes them as 1 and 0.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from json import JSONDecodeError
from typing import Any, get_args

ENV_PREFIX = "SEAMLESSFLOW_"
SettingPath = tuple[int | str, ...]
"""A setting's place: its sections and its field by name, places in lists by number."""

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
"""Names that may follow the prefix: from all processes and from a run's configuration."""

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
    """Return the name of a setting's environment variable."""
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


_NUMBERS = {int, float}


def refuse_truth(value: Any, annotation: Any) -> Any:
    """Return a value for a setting with this type.

    Raise `ValueError` if it has true or false, and the type has numbers but no truth value.
    """
    kinds = set(_kinds(annotation))
    if kinds & _NUMBERS and bool not in kinds and (places := list(_truths(value))):
        place = f"{places[0]}: " if places[0] else ""
        raise ValueError(
            f"{place}must be a number, not true or false, which yes, no, on and off are also"
        )
    return value


def _kinds(annotation: Any) -> Iterator[Any]:
    """Yield the types inside an annotation."""
    if inner := get_args(annotation):
        for part in inner:
            yield from _kinds(part)
    else:
        yield annotation


def _truths(value: Any, place: str = "") -> Iterator[str]:
    """Yield the places at which a value has true or false."""
    if isinstance(value, bool):
        yield place
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _truths(inner, f"{place}.{name}".lstrip("."))
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _truths(inner, f"{place}[{number}]")
