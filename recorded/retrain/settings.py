"""Settings of a recorded run, with values replaced for an ablation. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson
import yaml
from pydantic import ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.faults import SettingPath, faults
from seamlessflow.infra.plain_yaml import read_yaml
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import LineageStarted
from seamlessflow.trainer.settings import TrainerSettings


class _RecordedSettings(TrainerSettings):
    """Settings from a record alone: nothing of the environment may enter them."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        *others: PydanticBaseSettingsSource,
        **more: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


def recorded_settings(
    lineage: LineageStarted, kafka: KafkaSettings, replaced: Sequence[str] = ()
) -> TrainerSettings:
    """Return the settings that a lineage was trained with; `replaced` are like `a.b=value`.

    On one device, whatever device and rank the recorded process had. Raises `SettingsRejected`.
    """
    sections = orjson.loads(lineage.settings)
    sections["trainer"] |= {"threads": lineage.threads or None}
    for option in replaced:
        _replace(sections, option)
    try:
        return _RecordedSettings(**sections, kafka=kafka)
    except ValidationError as error:
        first = faults(error, _RecordedSettings)[0]
        raise SettingsRejected("--set", first.line(_dotted)) from error


def changed_settings(before: LineageStarted, after: LineageStarted) -> Mapping[str, str]:
    """Return the settings in which two lineages differ, by path, as `old -> new`."""
    old, new = (dict(_flat("", orjson.loads(lineage.settings))) for lineage in (before, after))
    return {
        name: f"{old.get(name)} -> {new.get(name)}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    }


def _dotted(path: SettingPath) -> str:
    return ".".join(map(str, path))


def _flat(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the settings within a section, each with its path."""
    if not isinstance(value, dict):
        yield path, value
        return
    for name, inner in value.items():
        yield from _flat(f"{path}.{name}" if path else name, inner)


def _replace(sections: dict[str, Any], option: str) -> None:
    path, equals, value = option.partition("=")
    *parents, name = path.split(".")
    place: Any = sections
    for parent in parents:
        place = place.get(parent) if isinstance(place, dict) else None
    if not equals or not isinstance(place, dict) or name not in place:
        names = sorted(place) if isinstance(place, dict) else sorted(sections)
        reason = f"{option} is not NAME=VALUE of a recorded setting; there are {', '.join(names)}"
        raise SettingsRejected("--set", reason)
    place[name] = _value(option, value)


def _value(option: str, text: str) -> Any:
    try:
        return read_yaml(text)
    except yaml.YAMLError as error:
        raise SettingsRejected("--set", f"{option}: {error}") from error
