"""The command `seamlessflow render kubernetes`: a run's manifests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from seamlessflow.config import RunConfig
    from seamlessflow.infra.faults import Fault

_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
"""Pattern for names that Kubernetes objects can have (RFC 1123)."""
_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,45}[a-z0-9])?")
"""Pattern for names that, with `-kafka-bootstrap`, fit a Service's 63 characters (RFC 1035)."""
_IMAGE = re.compile(r"[\w.:/@-]+", re.ASCII)

app = typer.Typer(help="Write files with which other systems start a run.", no_args_is_help=True)


@app.callback()
def render() -> None:
    """Write files with which other systems start a run."""


@app.command()
def kubernetes(
    config: Annotated[Path, typer.Option(help="Run configuration in YAML, without secrets.")],
    out: Annotated[Path, typer.Option(help="Directory for the manifests; it replaces old ones.")],
    image: Annotated[str, typer.Option(help="Image with this project and your agent.")],
    secret: Annotated[str, typer.Option(help="Name of the Secret.")] = "seamlessflow",  # nosec B107
    claim: Annotated[str, typer.Option(help="Claim for the shared volume.")] = "seamlessflow",
    strimzi: Annotated[
        str, typer.Option(help="Name for a Kafka that Strimzi makes; by default none is made.")
    ] = "",
) -> None:
    """Write a run's Kubernetes manifests, one file a component; see runbooks/kubernetes.md."""
    import os

    from seamlessflow.config import RunConfig
    from seamlessflow.config_file import load
    from seamlessflow.device_defaults import by_named_devices
    from seamlessflow.infra.settings import from_environment
    from seamlessflow.kubernetes.manifests import (
        as_yaml,
        bootstrap_address,
        kafka_cluster,
        manifests,
    )
    from seamlessflow.kubernetes.objects import ClusterNames
    from seamlessflow.named_models import Fetched

    _check_names(image, {"--secret": secret, "--claim": claim, "--strimzi": strimzi})
    if variables := from_environment(RunConfig, os.environ)[0]:
        names = ", ".join(sorted(variables))
        text = f"variables of this shell set {names}: unset them, only the file is rendered"
        raise typer.BadParameter(text, param_hint="--config")
    if config.suffix not in (".yaml", ".yml"):
        raise typer.BadParameter(f"{config} is no YAML file", param_hint="--config")
    loaded = load(config, _faults, by_named_devices, Fetched.NONE)
    if (kafka := loaded.kafka) is None:  # refused above
        return
    if strimzi and kafka.bootstrap_servers != (address := bootstrap_address(strimzi)):
        text = f"kafka.bootstrap_servers is not {address}, where {strimzi} answers"
        raise typer.BadParameter(text, param_hint="--strimzi")
    rendered = manifests(
        loaded, kafka, config.read_text(encoding="utf-8"), ClusterNames(image, secret, claim)
    )
    if strimzi:
        rendered["kafka"] = kafka_cluster(strimzi)
    files = {out / f"{name}.yaml": objects for name, objects in rendered.items()}
    earlier = {*out.glob("node-*.yaml"), *out.glob("kafka.yaml")}
    if left := sorted(earlier - set(files)):
        text = f"{left[0]} is not of this run: remove it, or it would be applied too"
        raise typer.BadParameter(text, param_hint="--out")
    _write({path: as_yaml(objects) for path, objects in files.items()}, out)


def _check_names(image: str, names: Mapping[str, str]) -> None:
    for option, name in names.items():
        if name and not _NAME.fullmatch(name):
            raise typer.BadParameter(f"{name!r} is no name of an object", param_hint=option)
    if (name := names["--strimzi"]) and not _LABEL.fullmatch(name):
        text = f"{name!r}: services have it in their names: at most 47 of a-z, 0-9 and - within"
        raise typer.BadParameter(text, param_hint="--strimzi")
    if not _IMAGE.fullmatch(image):
        raise typer.BadParameter(f"{image!r} is no name of an image", param_hint="--image")


def _write(files: Mapping[Path, str], out: Path) -> None:
    from seamlessflow.infra.disk import whole_file

    try:
        out.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            with whole_file(path) as file:
                file.write(text.encode())
    except OSError as error:
        text = f"nothing can be written to {out}: {error.strerror or error}"
        raise typer.BadParameter(text, param_hint="--out") from error
    for path in files:
        typer.echo(path)


def _faults(config: RunConfig) -> Iterator[Fault]:
    """Yield what no cluster can run, and what each node or process would refuse."""
    from seamlessflow.checks.combinations import faults_of_processes
    from seamlessflow.checks.devices import divided_faults
    from seamlessflow.each_policy import each_policy
    from seamlessflow.kubernetes.faults import cluster_faults
    from seamlessflow.processes.ranks import gang_faults

    yield from cluster_faults(config)
    for policy_config in each_policy(config):
        yield from gang_faults(policy_config)
    yield from divided_faults(config)
    yield from faults_of_processes(config, True)
