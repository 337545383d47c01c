"""Settings for modelled work: the section `device_model`, its rates, and turns' lengths.

Read by `seamlessflow simulate`, and in a rehearsal by the clock engine and the clock backend. A
drawn length has two parts: a task's group of sessions shares the first, and each turn has its own
second.
"""

from collections.abc import Callable
from dataclasses import fields, replace
from math import exp, sqrt
from typing import Any

from pydantic import ConfigDict, Field, field_validator

from seamlessflow.infra.device_model.model_shape import ShapeUnknown
from seamlessflow.infra.device_model.presets import (
    HARDWARE,
    MODELS,
    UnknownPreset,
    hardware_named,
    model_named,
)
from seamlessflow.infra.device_model.rates import Rates, rates_of
from seamlessflow.infra.faults import suggestion
from seamlessflow.infra.settings import Section


class LengthsSection(Section):
    """A log-normal distribution of a turn's tokens."""

    model_config = ConfigDict(allow_inf_nan=False)

    turn_tokens: float = Field(500, gt=0, description="Mean tokens sampled in a turn")
    spread: float = Field(
        0.8,
        ge=0,
        le=6,
        description="Standard deviation of the logarithm of a turn's sampled tokens",
    )
    most_tokens: int = Field(32_768, ge=1, description="Most tokens sampled in a turn")
    prompt_effect: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Share of that variance that comes from the task, so a whole group has it in "
        "common",
    )


def drawn_tokens(section: LengthsSection, group: float, turn: float, factor: float = 1.0) -> int:
    """Return a turn's token count from two standard normal draws, its group's and its own.

    `factor` multiplies the mean.
    """
    mixed = sqrt(section.prompt_effect) * group + sqrt(1 - section.prompt_effect) * turn
    tokens = log_normal(factor * section.turn_tokens, section.spread, mixed)
    return max(1, round(min(section.most_tokens, tokens)))


def log_normal(mean: float, spread: float, normal: float) -> float:
    """Return a log-normal draw with this mean, made from a standard normal draw."""
    return mean * exp(spread * normal - spread * spread / 2)


class DeviceModelSection(Section):
    """Modelled devices and the model on them."""

    model_config = ConfigDict(allow_inf_nan=False)

    hardware: str = Field("H100", description=f"The workers' devices: {', '.join(HARDWARE)}")
    model: str = Field(
        "Qwen3-8B",
        description=f"Model that is trained: {', '.join(MODELS)}, or a directory with its "
        "config.json; if not set: policy.model, if the configuration has one that can be read",
    )
    rates: dict[str, float] = Field(
        default_factory=dict,
        description="Measured times for every worker, in seconds, instead of modelled ones: "
        f"{', '.join(field.name for field in fields(Rates))}",
    )
    step_s: float = Field(0, ge=0, description="Fixed part of an optimizer step, in seconds")
    publish_s: float = Field(
        0, ge=0, description="Seconds between a trained step and the publication of its weights"
    )
    scale: float = Field(
        1,
        gt=0,
        description="Factor for all device times in a rehearsal: 0.1 makes them a tenth. Time-outs "
        "and the processes' own time stay as they are. seamlessflow simulate ignores it",
    )

    @field_validator("hardware")
    @classmethod
    def _known_hardware(cls, name: str) -> str:
        return known_hardware(name)

    @field_validator("model")
    @classmethod
    def _known_model(cls, name: str) -> str:
        try:
            return _preset(lambda: model_named(name).name)
        except ShapeUnknown as error:
            raise ValueError(str(error)) from error

    @field_validator("rates")
    @classmethod
    def _known(cls, rates: dict[str, float]) -> dict[str, float]:
        names = [field.name for field in fields(Rates)]
        for name in rates:
            if name not in names:
                near = suggestion(name, names)
                raise ValueError(f"no rate is named {name}; known are {', '.join(names)}{near}")
        if wrong := [f"{name} (got {value:g})" for name, value in rates.items() if value < 0]:
            raise ValueError(f"{', '.join(wrong)} must be at least 0")
        if rates.get("weights_s") == rates.get("row_s") == 0 and not rates.get("launch_s"):
            raise ValueError("a decode pass must take time: launch_s, weights_s or row_s")
        return rates


def worker_rates(
    section: DeviceModelSection,
    devices: int,
    rows: int = 256,
    hardware: str | None = None,
    gang: int = 0,
) -> Rates:
    """Return the rates for a worker with so many devices and at most `rows` rows, without `scale`.

    `hardware` names its devices if they differ from the section's. It trains in a gang with `gang`
    devices, or alone. Raises `UnknownPreset` or `ModelTooLarge`.
    """
    device = hardware_named(hardware or section.hardware)
    measured: dict[str, Any] = section.rates
    modelled = rates_of(device, model_named(section.model), devices, rows=rows, gang=gang)
    return replace(modelled, **measured)


def known_hardware(name: str) -> str:
    """Return the name if a device has it, or raise `ValueError`."""
    return _preset(lambda: hardware_named(name).name)


def _preset(look_up: Callable[[], str]) -> str:
    try:
        return look_up()
    except UnknownPreset as error:
        raise ValueError(str(error)) from error
