"""A simulation's workers and work, from its section or else from the run; their memory. Pure.

Called by `seamlessflow simulate`, `plan` and `rehearse`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from math import inf
from pathlib import Path

from seamlessflow.config import RunConfig
from seamlessflow.config_file import ConfigRejected
from seamlessflow.infra.device_model.model_shape import ShapeUnknown
from seamlessflow.infra.device_model.presets import UnknownPreset, hardware_named, model_named
from seamlessflow.infra.device_model.rates import Efficiency
from seamlessflow.infra.device_model.settings import DeviceModelSection, LengthsSection
from seamlessflow.infra.settings import ENV_PREFIX
from seamlessflow.infra.worker.tags import ROLES
from seamlessflow.lab.simulation.cluster import ModelledCluster
from seamlessflow.lab.simulation.settings import SimulatedWorkersSection, SimulationSection
from seamlessflow.lab.simulation.simulator import SimulatedRun
from seamlessflow.schemas.records import Record, StepStarted

_HARDWARE = f"{ENV_PREFIX}DEVICE_MODEL__HARDWARE"
"""Variable by which a worker has other devices in a rehearsal."""

_LENGTHS = tuple(LengthsSection.model_fields)

_WorkerMemory = tuple[int, float]
"""A worker's device count, and these devices' memory together, in bytes."""

_Lot = tuple[tuple[str, ...], int, str | None]
"""A worker's roles, its device count, and the devices' name if its environment has one."""


def with_own_workers(config: RunConfig, path: Path | None) -> tuple[SimulationSection, str]:
    """Return the section with workers, and a line about them.

    They are the workers of `run.policy` if the section names none and the configuration does.
    Raises `ConfigRejected`, with the `path`, if a role has no worker among them.
    """
    section = config.simulation
    if "workers" in section.model_fields_set:
        return section, f"workers of simulation.workers: {_named(config, section.workers)}"
    if "workers" not in config.model_fields_set:
        return section, f"default workers of simulation.workers: {_named(config, section.workers)}"
    lots = Counter(_lots(config))
    for role in ROLES:
        if not any(role in tags for tags, _, _ in lots):
            raise ConfigRejected(
                path, [f"workers: no worker of {config.run.policy} has the tag {role}"]
            )
    workers = tuple(
        SimulatedWorkersSection.model_validate(
            {"count": count, "tags": tags, "devices": devices, "hardware": hardware}
        )
        for (tags, devices, hardware), count in lots.items()
    )
    line = f"the run's own workers: {_named(config, workers)}"
    return section.model_copy(update={"workers": workers}), f"{line}{_left_out(config)}"


def _named(config: RunConfig, workers: Iterable[SimulatedWorkersSection]) -> str:
    hardware = config.device_model.hardware
    return ", ".join(
        f"{worker.count} x {worker.devices} {worker.hardware or hardware} with the "
        f"{'tag' if len(worker.tags) == 1 else 'tags'} {' and '.join(worker.tags)}"
        for worker in workers
    )


def with_own_work(config: RunConfig) -> RunConfig:
    """Return the configuration with the run's own values for settings that `simulation` leaves out.

    The model is `policy.model`, if it can be read. Turn lengths are those in `rollout.clock`, if
    that is the engine. An engine's rows are `rollout.capacity`.
    """
    section = config.simulation
    rollout = config.rollout
    changes: dict[str, object] = {}
    if "rows" not in section.model_fields_set:
        changes["rows"] = rollout.capacity
    if rollout.engine == "clock":
        names = section.workload.model_fields_set
        lengths = {name: getattr(rollout.clock, name) for name in _LENGTHS if name not in names}
        changes["workload"] = section.workload.model_copy(update=lengths)
    simulation = section.model_copy(update=changes)
    return with_own_model(config).model_copy(update={"simulation": simulation})


def with_own_model(config: RunConfig) -> RunConfig:
    """Return the configuration with `policy.model` as the modelled model.

    It is unchanged if that cannot be read, or if `device_model.model` is set.
    """
    devices = config.device_model
    model = str(config.policy.model)
    if "model" in devices.model_fields_set or _unreadable(config):
        return config
    return config.model_copy(update={"device_model": devices.model_copy(update={"model": model})})


def sessions_at_once(config: RunConfig) -> float:
    """Return how many sessions the agents process plays at once; infinite if no agent is named."""
    return config.agents.concurrency if _names_agent(config) else inf


def held_back(config: RunConfig, run: SimulatedRun) -> str:
    """Return a notice if `agents.concurrency` made sessions wait; empty if it did not."""
    if not run.agents_full_s:
        return ""
    return (
        f"agents.concurrency {config.agents.concurrency} made sessions wait during "
        f"{run.agents_full_s / run.ended_s:.0%} of the time; with {run.sessions_wanted} none would"
    )


def _names_agent(config: RunConfig) -> bool:
    return bool(config.agents.callable or config.agents.command)


def _unreadable(config: RunConfig) -> str:
    """Return why `policy.model` cannot be modelled; empty if it can."""
    if "model" not in config.policy.model_fields_set:
        return "policy.model is not set"
    try:
        model_named(str(config.policy.model))
    except (UnknownPreset, ShapeUnknown) as error:
        reason = error.reason if isinstance(error, ShapeUnknown) else "no such directory"
        return f"policy.model {config.policy.model}: {reason}"
    return ""


def _work(config: RunConfig) -> str:
    """Return words about the modelled work, and where its lengths are from."""
    section = config.simulation
    workload = config.simulation.workload
    source = "simulation.workload"
    noun = "turn" if workload.turns == 1 else "turns"
    if config.rollout.engine == "clock":
        source = "simulation.workload, and rollout.clock for lengths that it does not give"
    elif "workload" not in section.model_fields_set:
        source = "defaults of simulation.workload"
    return (
        f"sessions of {workload.turns:g} {noun} of {workload.turn_tokens:g} tokens in the mean, "
        f"prompts of {workload.prompt_tokens:,} tokens and {workload.tool_tokens:,} more a turn "
        f"({source}); at most {section.rows} turns an engine ({_source_of_rows(config)}), "
        f"{_sessions(config)}"
    )


def _source_of_rows(config: RunConfig) -> str:
    return (
        "rollout.capacity"
        if config.simulation.rows == config.rollout.capacity
        else "simulation.rows"
    )


def _sessions(config: RunConfig) -> str:
    most = sessions_at_once(config)
    return "any number of sessions" if most == inf else f"{most} sessions (agents.concurrency)"


def modelled_as(config: RunConfig, section: SimulationSection) -> str:
    """Return a line about the modelled model, devices and work, and where they are from."""
    modelled = config.device_model
    names = modelled.model_fields_set
    model = "device_model"
    if modelled.model == str(config.policy.model):
        model = "policy.model"
    elif "model" not in names:
        model = f"default; {_unreadable(config)}"
    hardware = f"{modelled.hardware} ({'device_model' if 'hardware' in names else 'default'})"
    kinds = dict.fromkeys(lot.hardware for lot in section.workers)
    devices = ", ".join(f"{name} (its workers)" if name else hardware for name in kinds)
    rates = (
        f"; measured (device_model.rates): {', '.join(modelled.rates)}" if modelled.rates else ""
    )
    return f"modelled: {modelled.model} ({model}) on {devices}{rates}; {_work(config)}"


def without_room(
    devices: DeviceModelSection, cluster: ModelledCluster, control: Iterable[Record]
) -> str:
    """Return a notice if a simulated run's least gang could not hold what training keeps.

    Empty if it could, or if the training time was measured, not modelled.
    """
    workers = {
        name: (worker.devices, worker.devices * worker.hardware["memory_bytes"])
        for name, worker in cluster.workers.items()
    }
    return _without_room(devices, workers, control)


def without_room_of_own(config: RunConfig, control: Iterable[Record]) -> str:
    """Return the same notice for the run's own workers, as a rehearsal has them."""
    workers = dict[str, _WorkerMemory]()
    for worker in config.workers:
        hardware = hardware_named(worker.environment.get(_HARDWARE) or config.device_model.hardware)
        bytes_there = worker.device_count * hardware.figures["memory_bytes"]
        workers[worker.id] = (worker.device_count, bytes_there)
    return _without_room(config.device_model, workers, control)


def _without_room(
    devices: DeviceModelSection, workers: Mapping[str, _WorkerMemory], control: Iterable[Record]
) -> str:
    gangs = {record.workers for record in control if isinstance(record, StepStarted)}
    candidates = [[workers[name] for name in gang] for gang in gangs if workers.keys() >= {*gang}]
    if not candidates or "train_s" in devices.rates:
        return ""
    members = min(candidates, key=_memory)
    bytes_each = Efficiency().trained_bytes
    model = model_named(devices.model)
    needed = bytes_each * model.parameters
    available = _memory(members)
    if needed <= available:
        return ""
    return (
        f"{model.name} has no room on a gang of {sum(count for count, _ in members)} devices, and "
        f"is modelled all the same: to train it takes {needed / 1e9:,.0f} GB ({bytes_each:g} "
        f"bytes a parameter), and they have {available / 1e9:,.0f} GB"
    )


def _memory(workers: Iterable[_WorkerMemory]) -> float:
    return sum(size for _, size in workers)


def _lots(config: RunConfig) -> Iterator[_Lot]:
    for worker in config.workers:
        roles = tuple(role for role in ROLES if role in worker.tags)
        if roles and not worker.shared and worker.policy in ("", config.run.policy):
            yield roles, worker.device_count, worker.environment.get(_HARDWARE)


def _left_out(config: RunConfig) -> str:
    left = len(config.workers) - sum(1 for _ in _lots(config))
    noun = "worker" if left == 1 else "workers"
    return f"; left out: {left} {noun} of other policies" if left else ""
