"""A simulated cluster's workers, with their tags, devices and rates."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from seamlessflow.infra.device_model.presets import hardware_named
from seamlessflow.infra.device_model.rates import Rates
from seamlessflow.infra.device_model.settings import DeviceModelSection, worker_rates
from seamlessflow.infra.worker.updates import UpdateSection
from seamlessflow.lab.simulation.settings import SimulatedWorkersSection, SimulationSection


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelledWorker:
    """One worker."""

    tags: tuple[str, ...]
    rates: Rates
    devices: int = 1
    hardware: Mapping[str, float] = field(default_factory=dict)
    """Its devices' figures, as its heartbeats have them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelledCluster:
    """The workers by name, and the costs that belong to none of them."""

    workers: Mapping[str, ModelledWorker]
    step_s: float = 0.0
    """An optimizer step's fixed part."""
    publish_s: float = 0.0
    """Time from when a step has trained until its weights are published."""
    update: UpdateSection = field(default_factory=UpdateSection)
    """When workers load new weights."""
    sessions: float = inf
    """Most sessions that agents play at once, as `agents.concurrency`."""


def modelled(
    section: SimulationSection,
    devices: DeviceModelSection,
    update: UpdateSection,
    gang_size: int | None = None,
    sessions: float = inf,
) -> ModelledCluster:
    """Return the cluster that the settings describe.

    `gang_size`: as `scheduler.gang_size`. `sessions`: most at once. Raises `UnknownPreset` or
    `ModelTooLarge`.
    """
    workers: dict[str, ModelledWorker] = {}
    able = sum(lot.count * lot.devices for lot in section.workers if "train" in lot.tags)
    gang = min(able, gang_size or able)
    for lot in section.workers:
        worker = _worker(section.rows, devices, lot, gang)
        first = len(workers)
        workers |= {f"w{number}": worker for number in range(first, first + lot.count)}
    return ModelledCluster(
        workers=workers,
        step_s=devices.step_s,
        publish_s=devices.publish_s,
        update=update,
        sessions=sessions,
    )


def _worker(
    rows: int, devices: DeviceModelSection, lot: SimulatedWorkersSection, gang: int
) -> ModelledWorker:
    hardware = hardware_named(lot.hardware or devices.hardware)
    return ModelledWorker(
        tags=lot.tags,
        rates=worker_rates(devices, lot.devices, rows, lot.hardware, gang),
        devices=lot.devices,
        hardware=hardware.figures,
    )
