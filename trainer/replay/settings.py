"""Settings of a recorded run, with values replaced for an ablation. Pure."""

from collections.abc import Sequence
from typing import Any

import orjson
import yaml
from pydantic import ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from infra.errors import SettingsRejected
from infra.settings import KafkaSettings
from schemas.records import LineageStarted
from trainer.settings import TrainerSettings


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
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise SettingsRejected("--set", f"{place}: {first['msg']}") from error


def _replace(sections: dict[str, Any], option: str) -> None:
    path, equals, value = option.partition("=")
    *parents, name = path.split(".")
    place: Any = sections
    for parent in parents:
        place = place.get(parent) if isinstance(place, dict) else None
    if not equals or not isinstance(place, dict) or name not in place:
        known = sorted(place) if isinstance(place, dict) else sorted(sections)
        reason = f"{option} is not NAME=VALUE of a recorded setting; there are {', '.join(known)}"
        raise SettingsRejected("--set", reason)
    place[name] = yaml.safe_load(value)
