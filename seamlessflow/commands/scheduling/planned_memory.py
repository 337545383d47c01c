"""Memory in `seamlessflow plan`: the run to plan, and a table with what fits on its devices."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from seamlessflow.config import RunConfig
    from seamlessflow.machine import Capacity
    from seamlessflow.memory.verdict import MemoryVerdict

_DEVICES = re.compile(
    r"(?P<count>\d+)(x(?P<name>[A-Za-z0-9]+?)(-(?P<size>\d+(\.\d+)?[KMGT]i?B))?)?"
)
_SIZE = re.compile(r"(?P<number>\d+(\.\d+)?) ?(?P<power>[KMGT])(?P<binary>i?)B")
_NO_MODEL = (
    "--memory, --host-memory, --engine-devices, --set and --json plan memory: give --model, or "
    "--config with --memory or --devices"
)
_HOST_DEVICES = 8
"""Devices per host, if no configuration says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOptions:
    """Options for a memory plan."""

    model: Path | None
    config: Path | None
    devices: str | None
    train_devices: int | None
    """Devices that only train."""
    engine_devices: int | None
    memory: str | None
    """Each device's memory."""
    host_memory: str | None
    settings: Sequence[str]
    as_json: bool

    def asked(self) -> bool:
        """Return True if the options ask for a memory plan, False for a plan of steps.

        Raises `typer.BadParameter` if an option for memory plans is given without a model.
        """
        configured = self.config is not None and (self.memory or self.devices)
        if self.model is not None or configured:
            return True
        sizes = self.memory or self.host_memory or self.engine_devices
        if sizes or self.settings or self.as_json:
            raise typer.BadParameter(_NO_MODEL)
        return False


def plan_memory(options: MemoryOptions) -> None:
    """Print what each part of a run takes, and end with status 1 if it does not fit."""
    from seamlessflow.memory.demand import shapes_of
    from seamlessflow.memory.verdict import verdicts

    run = _configured(options)
    machine = _machine(options, run)
    shapes = shapes_of(run)
    results = list(verdicts(run, shapes, machine))
    if options.as_json:
        typer.echo(json.dumps([_record(verdict) for verdict in results], indent=2))
    else:
        whole = shapes[run.policy.model]
        typer.echo(f"{run.policy.model}: {whole.parameters:,} parameters")
        for verdict in results:
            _print(verdict)
    if any(verdict.fits is False for verdict in results):
        raise typer.Exit(1)


def bytes_of(text: str, option: str = "") -> float:
    """Return the bytes in a size such as 80GB or 79.6GiB.

    Raises `typer.BadParameter`, which names the option.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise typer.BadParameter(f"{option}{text!r} is no size, such as 80GB or 79.6GiB")
    base = 1024 if match["binary"] else 1000
    return float(match["number"]) * float(base ** (1 + "KMGT".index(match["power"])))


def _devices(text: str) -> tuple[int, float | None]:
    """Return count and memory from `8`, `8xH100` or `8xH100-80GB`; None if no memory is known."""
    from seamlessflow.infra.device_model.presets import UnknownPreset, hardware_named

    match = _DEVICES.fullmatch(text)
    if match is None or not int(match["count"]):
        raise typer.BadParameter(f"--devices {text}: give a number, as 8, 8xH100 or 8xH100-80GB")
    if match["size"]:
        return int(match["count"]), bytes_of(match["size"])
    try:
        size = hardware_named(match["name"]).memory_bytes if match["name"] else None
    except UnknownPreset as error:
        text = f"--devices {text}: {error}; or give its memory, as 8x{match['name']}-80GB"
        raise typer.BadParameter(text) from error
    return int(match["count"]), size


def _machine(options: MemoryOptions, run: "RunConfig") -> "Capacity":
    from seamlessflow.machine import Capacity, this_machine

    of_device = _size("--memory ", options.memory)
    of_host = _size("--host-memory ", options.host_memory)
    devices = options.devices
    if devices is None:
        here = this_machine()
        gpus = here.gpus if of_device is None else None
        return Capacity(of_device or here.device_bytes, of_host or here.host_bytes, gpus)
    count, size = _devices(devices)
    present = sum(worker.device_count for worker in run.workers)
    if options.config is not None and present != count:
        raise typer.BadParameter(f"--devices {devices}: the workers of --config have {present}")
    if size is None and of_device is None:
        raise typer.BadParameter("--devices without a name needs --memory, that of each device")
    return Capacity(of_device or size, of_host, count)


def _size(option: str, text: str | None) -> float | None:
    return None if text is None else bytes_of(text, option)


def _configured(options: MemoryOptions) -> "RunConfig":
    """Return a file's run, or a run on the given devices, with further settings."""
    from seamlessflow.checks.models import trained_model_faults
    from seamlessflow.config_file import parse, sections_of
    from seamlessflow.device_defaults import by_modelled_devices, by_this_machine
    from seamlessflow.named_models import Fetched

    config = options.config
    devices = options.devices
    if config is not None and (options.train_devices or options.engine_devices):
        raise typer.BadParameter("--config says which workers train, and the devices of each")
    values: dict[str, Any] = dict(sections_of(config)) if config is not None else {}
    if config is None and devices is not None:
        values = _values(_devices(devices)[0], options.train_devices, options.engine_devices)
    model = options.model
    changes = [(("policy", "model"), str(model))] if model is not None else []
    for path, value in [*changes, *map(_setting, options.settings)]:
        values = _with(values, path, value)
    fill = by_this_machine if devices is None else by_modelled_devices
    return parse(values, config, trained_model_faults, fill, Fetched.WITHOUT_WEIGHTS)


def _values(count: int, alone: int | None, engine: int | None) -> dict[str, Any]:
    """Return a configuration with `count` devices in bfloat16; `alone` devices only train."""
    size = engine or 1
    trained = alone or count
    if trained > count or (count if alone is None else count - alone) % size:
        text = f"{count} devices cannot be so: {trained} train, and engines have {size} each"
        raise typer.BadParameter(text)
    workers = []
    if alone is not None:
        each = min(alone, _HOST_DEVICES)
        workers = [_worker(f"t{n}", ["train"], each) for n in range(-(-alone // each))]
        workers[-1]["devices"] = list(range(alone - each * (len(workers) - 1)))
        engines = [_worker(f"w{n}", ["rollout"], size) for n in range((count - alone) // size)]
        workers += engines
    else:
        workers = [_worker(f"w{n}", ["rollout", "train"], size) for n in range(count // size)]
    first = 0
    for worker in workers:
        if count > _HOST_DEVICES:
            worker["node"] = f"n{first // _HOST_DEVICES}"
        first += len(worker["devices"])
    backend = "fsdp2" if trained > 1 else "torch"
    return {
        "workers": workers,
        "trainer": {"backend": backend, "ranks": trained, "dtype": "bfloat16", "device": "cuda"},
        "rollout": {"engine": "vllm", "vllm": {"gpu": True, "kv_bytes": None}},
    }


def _worker(name: str, tags: list[str], devices: int) -> dict[str, Any]:
    return {"id": name, "tags": tags, "devices": list(range(devices))}


def _setting(text: str) -> tuple[tuple[str, ...], Any]:
    import yaml

    from seamlessflow.infra.plain_yaml import read_yaml

    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"--set {text}: give NAME=VALUE, as trainer.dtype=bfloat16")
    try:
        return tuple(name.split(".")), read_yaml(value)
    except yaml.YAMLError as error:
        raise typer.BadParameter(f"--set {text}: {error}") from error


def _with(values: Mapping[str, Any], path: Sequence[str], value: object) -> dict[str, Any]:
    """Return sections with one setting changed."""
    first, *rest = path
    inner = value
    if rest:
        under = values.get(first)
        inner = _with(under if isinstance(under, Mapping) else {}, rest, value)
    return {**values, first: inner}


def _record(verdict: "MemoryVerdict") -> dict[str, Any]:
    return {
        "place": verdict.place,
        "parts": {part.name: round(part.bytes) for part in verdict.parts},
        "needed": round(verdict.needed),
        "there": None if verdict.available is None else round(verdict.available),
        "fits": verdict.fits,
        "notes": list(verdict.notes),
        "levers": {lever.change: round(lever.bytes) for lever in verdict.levers},
    }


def _print(verdict: "MemoryVerdict") -> None:
    from seamlessflow.memory.verdict import gibibytes

    typer.echo(f"\n{verdict.place}")
    for part in verdict.parts:
        typer.echo(f"{gibibytes(part.bytes):>12}  {part.name}")
    unknown = (
        "what there is, is unknown" if verdict.available is None else "fits but for what is unknown"
    )
    answer = {True: "fits", False: "DOES NOT FIT", None: unknown}[verdict.fits]
    memory = "" if verdict.available is None else f" of {gibibytes(verdict.available)}"
    typer.echo(f"{gibibytes(verdict.needed):>12}  in all{memory}: {answer}")
    for note in verdict.notes:
        typer.echo(f"              {note}")
    for lever in verdict.levers:
        fits = verdict.available is not None and lever.bytes <= verdict.available
        typer.echo(
            f"{gibibytes(lever.bytes):>12}  with {lever.change}{', which fits' if fits else ''}"
        )
