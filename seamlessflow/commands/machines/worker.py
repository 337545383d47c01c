"""The command `seamlessflow worker`: a further rollout worker of a run that is under way."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from seamlessflow.config import RunConfig
    from seamlessflow.infra.settings import KafkaSettings
    from seamlessflow.processes.child import ChildSpec
    from seamlessflow.worker_section import WorkerSection


def worker(
    name: Annotated[str, typer.Argument(metavar="ID", help="Id of the worker, new in the run.")],
    config: Annotated[Path, typer.Option(help="Configuration of the run that it joins.")],
    tags: Annotated[
        str, typer.Option(help="Its tags, with commas: rollout, and such as describe it.")
    ] = "rollout",
    device: Annotated[
        str | None, typer.Option(help="Its device, as workers[].device.  [as rollout.torch]")
    ] = None,
    devices: Annotated[
        str, typer.Option(help="Numbers of its devices, with commas, if it is several.")
    ] = "",
) -> None:
    """Let a worker join a run: it gets turns once it has the weights. Ctrl-C or SIGTERM ends it.

    Its turns then go on at other workers, from their last token. Its Kafka is that of the run, or
    the one of the configuration: on another machine that has to be a Kafka of your own, and the
    run's directory a shared one.
    """
    import os
    import sys

    from seamlessflow.config_file import load
    from seamlessflow.processes.cluster import kafka_of_running

    loaded = load(config)
    asked = {
        "id": name,
        "tags": _listed(tags),
        "device": device,
        "devices": tuple(map(_number, _listed(devices))),
    }
    worker_section(loaded, asked)  # what is wrong with it is said before a run is looked for
    kafka = loaded.kafka or kafka_of_running(loaded.out)
    spec = joining(loaded, asked, kafka, os.environ)
    # The process itself: it gets the signals, and its exit status is that of the command.
    os.execve(sys.executable, spec.command, dict(spec.environment))  # nosec B606


def joining(
    config: "RunConfig",
    asked: Mapping[str, Any],
    kafka: "KafkaSettings",
    environment: Mapping[str, str],
) -> "ChildSpec":
    """Return the rollout process of a worker that joins. Raises `typer.BadParameter`."""
    from seamlessflow.processes.specs import LaunchContext, ProcessSpecs

    made = worker_section(config, asked)
    return ProcessSpecs(config, LaunchContext(kafka, 1, environment)).rollout(made)


def worker_section(config: "RunConfig", asked: Mapping[str, Any]) -> "WorkerSection":
    """Return the settings of a worker that joins. Raises `typer.BadParameter`."""
    from pydantic import ValidationError

    from seamlessflow.worker_section import WorkerSection

    try:
        made = WorkerSection.model_validate(asked)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise typer.BadParameter(f"{place}: {first['msg']}") from error
    if any(made.id == member.id for member in config.workers):
        raise typer.BadParameter(f"the run has a worker {made.id} of its own: choose another id")
    if "rollout" not in made.tags or "train" in made.tags:
        raise typer.BadParameter("tags: a worker that joins rolls out; ranks are those of the run")
    return made


def _listed(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (part.strip() for part in text.split(","))))


def _number(text: str) -> int:
    if not text.isdecimal():
        raise typer.BadParameter(f"devices: {text!r} is no number")
    return int(text)
