"""Facts that all ranks of a gang must have alike; they would train on in silence if not. Pure."""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from seamlessflow.schemas.releases import this_release
from seamlessflow.trainer.settings import TrainerSettings
from seamlessflow.trainer.sinks import SinkSettings

OWN = {
    "worker",
    "tags",
    "hardware",
    "host",
    "devices",
    "rank",
    "device",
    "threads",
    "weights_dir",
    "trained_dir",
    "checkpoints_dir",
    "heartbeat_s",
    "usage_s",
    *SinkSettings.model_fields,
}
"""Settings in which the workers of a gang may differ."""
_MODELS = {"reference", "teacher", "critic.model"}
_NAMED = 3

Facts = Mapping[str, str]
"""A short text for each name."""


def gang_facts(settings: TrainerSettings) -> Facts:
    """Return the facts of a rank: its run, its release, the model, and the trainer's settings.

    Paths of models count by what is in them, for they may differ between machines.
    """
    trainer = settings.trainer.model_dump(mode="json", exclude=OWN)
    chosen = {
        f"trainer.{name}": _content(Path(value)) if value and name in _MODELS else str(value)
        for name, value in _flat(trainer)
    }
    return chosen | {
        "release": this_release().version,
        "kafka.topic_prefix": settings.kafka.topic_prefix,
        "run.policy": settings.run.policy,
        "policy.model": _content(settings.policy.model),
    }


def differences(mine: Facts, other: Facts) -> str:
    """Return how the facts of another rank differ, the first few of them; nothing if they do not.

    Facts that one of them does not know of are those of another release.
    """
    names = [name for name in mine.keys() | other.keys() if mine.get(name) != other.get(name)]
    shown = [
        f"{name} is {other.get(name, 'unknown')}, not {mine.get(name, 'unknown')}"
        for name in sorted(names)[:_NAMED]
    ]
    more = [f"{len(names) - _NAMED} more"] if len(names) > _NAMED else []
    return "; ".join([*shown, *more])


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _content(directory: Path) -> str:
    """Return 12 hex digits for a model: its configuration, and names and sizes of its weights."""
    digest = hashlib.sha256()
    for path in (directory / "config.json", directory / "tokenizer.json"):
        digest.update(path.read_bytes() if path.is_file() else b"none")
    for path in sorted(directory.glob("*.safetensors")):
        digest.update(f"{path.name} {path.stat().st_size}".encode())
    return digest.hexdigest()[:12]
