"""Variables that look like settings and are none. Pure.

Processes may share one environment, so a name is right if it is one of any of them. What has no
`__` may belong to somebody else; it counts as a mistake only where it nearly spells a section.
"""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

SECTIONS = (
    "AGENTS",
    "BROKER",
    "DATA_DIR",
    "EVALUATION",
    "GATEWAY",
    "KAFKA",
    "MANAGER",
    "OUT",
    "PACING",
    "POLICY",
    "ROLLOUT",
    "RUN",
    "SCHEDULER",
    "START_TIMEOUT_S",
    "TELEMETRY",
    "TRAINER",
    "WORKERS",
)
"""What may follow the prefix, over all processes and the configuration of a run."""

_LIKE, _NEARLY = 0.6, 0.85


def misspelt(names: Iterable[str], prefix: str) -> Sequence[str]:
    """One line a variable that no process reads, with the nearest one that is read."""
    wrong = {name: _nearest(name.upper().removeprefix(prefix)) for name in _ours(names, prefix)}
    return [
        f"  {name}: no process reads it" + (f"; meant is {prefix}{meant}, perhaps" if meant else "")
        for name, meant in wrong.items()
        if meant is not None
    ]


def _ours(names: Iterable[str], prefix: str) -> Sequence[str]:
    return sorted(name for name in names if name.upper().startswith(prefix))


def _nearest(name: str) -> str | None:
    """None where nothing is wrong; empty where nothing is near."""
    section, nested, field = name.partition("__")
    if section in SECTIONS:
        return None
    near = get_close_matches(section, SECTIONS, 1, _LIKE if nested else _NEARLY)
    if not near:
        return "" if nested else None
    return f"{near[0]}{nested}{field}"
