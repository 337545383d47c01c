"""The commands that run workers on a host, `seamlessflow node` and `worker`.

`node` starts all workers that a run has on the host. `worker` adds one to a run under way.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from seamlessflow.config import RunConfig, WorkerSection
    from seamlessflow.infra.settings import KafkaSettings
    from seamlessflow.processes.child import ChildSpec


def node(
    config: Annotated[Path, typer.Option(help="Run configuration, the same on all nodes.")],
    name: Annotated[
        str | None,
        typer.Option(help="This node's name; by default SLURMD_NODENAME, or the host name."),
    ] = None,
) -> None:
    """Start what belongs to this host, a node of the run; ends with the run.

    The first node (`node` in the file) has gateway, manager, scheduler and agents. Each node runs
    the workers that name it. See runbooks/slurm.md.
    """
    import os
    import socket
    from functools import partial

    from seamlessflow.checks.check import before_node
    from seamlessflow.config_file import every_task, load, no_task
    from seamlessflow.nodes import node_name
    from seamlessflow.terminal import long_job_console

    this_node = node_name(name, os.environ, socket.gethostname())
    loaded = load(
        config,
        partial(before_node, name=this_node),
        read_tasks=lambda run: (every_task if run.head == this_node else no_task)(run),
    )
    # Not earlier: a missing package is a fault that the check names.
    from seamlessflow.runs.training import follow
    from seamlessflow.runs.training_run import run_training, shown

    kafka = loaded.kafka
    if this_node == loaded.head or kafka is None:  # only a run with one node names no Kafka
        run_training(loaded)
        return
    what = f"node {this_node}"
    shown(
        loaded,
        long_job_console(),
        lambda display, stop: follow(loaded, kafka, this_node, display, stop),
        what,
    )


def worker(
    name: Annotated[str, typer.Argument(metavar="ID", help="The worker's id, new in the run.")],
    config: Annotated[Path, typer.Option(help="Configuration of the run that the worker joins.")],
    tags: Annotated[
        str, typer.Option(help="Its tags, with commas: rollout, and tags that describe it.")
    ] = "rollout",
    device: Annotated[
        str | None,
        typer.Option(help="Its device, as in workers[].device; by default as in rollout.torch."),
    ] = None,
    devices: Annotated[
        str, typer.Option(help="Numbers of its devices, with commas, if it has several.")
    ] = "",
) -> None:
    """Let a worker join a run: it gets turns once it has the weights. Ctrl-C or SIGTERM ends it.

    Its turns then go on at other workers, from their last token. It uses the configuration's Kafka,
    or else the run's. On another machine the configuration has to name a Kafka that both reach, and
    the run's directory has to be shared.
    """
    import os
    import sys

    from seamlessflow.config_file import load, no_task
    from seamlessflow.processes.cluster import kafka_of_running

    loaded = load(config, read_tasks=no_task)
    asked = {
        "id": name,
        "tags": _listed(tags),
        "device": device,
        "devices": tuple(map(_number, _listed(devices))),
    }
    _worker_section(loaded, asked)  # reports a wrong option before it looks for a run
    kafka = loaded.kafka or kafka_of_running(loaded.out)
    spec = joining(loaded, asked, kafka, os.environ)
    # It replaces this process: it gets the signals, and its exit status is the command's.
    os.execve(sys.executable, spec.command, dict(spec.environment))  # nosec B606


def joining(
    config: "RunConfig",
    asked: Mapping[str, Any],
    kafka: "KafkaSettings",
    environment: Mapping[str, str],
) -> "ChildSpec":
    """Return the rollout process of a worker that joins. Raises `typer.BadParameter`."""
    from seamlessflow.processes.specs import LaunchContext, ProcessSpecs

    made = _worker_section(config, asked)
    return ProcessSpecs(config, LaunchContext(kafka, 1, environment)).rollout(made)


def _worker_section(config: "RunConfig", asked: Mapping[str, Any]) -> "WorkerSection":
    """Return the settings of a worker that joins. Raises `typer.BadParameter`."""
    from pydantic import ValidationError

    from seamlessflow.config import WorkerSection

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
