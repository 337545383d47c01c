"""The command `seamlessflow render kubernetes`: manifests of a run."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Files with which other systems start a run.", no_args_is_help=True)


@app.callback()
def render() -> None:
    """Files with which other systems start a run."""


@app.command()
def kubernetes(
    config: Annotated[Path, typer.Option(help="Run configuration in YAML, without secrets.")],
    out: Annotated[Path, typer.Option(help="Directory for the manifests; files of theirs change.")],
    image: Annotated[str, typer.Option(help="Image with this project and your agent.")],
    secret: Annotated[str, typer.Option(help="Name of the Secret.")] = "seamlessflow",  # nosec B107
    claim: Annotated[str, typer.Option(help="Claim of the shared volume.")] = "seamlessflow",
    strimzi: Annotated[
        str, typer.Option(help="Name of a Kafka that Strimzi shall make.  [a Kafka that is there]")
    ] = "",
) -> None:
    """Write Kubernetes manifests of a run, one file a component; see runbooks/kubernetes.md."""
    import os

    from infra.disk.whole_file import whole_file
    from infra.settings import from_environment
    from seamlessflow.config import RunConfig
    from seamlessflow.config_file import load
    from seamlessflow.kubernetes.faults import cluster_faults
    from seamlessflow.kubernetes.kafka import bootstrap_address, cluster
    from seamlessflow.kubernetes.manifests import as_yaml, manifests
    from seamlessflow.kubernetes.objects import ClusterNames

    if found := from_environment(RunConfig, os.environ)[0]:
        names = ", ".join(sorted(found))
        text = f"variables of this shell set {names}: unset them, only the file is rendered"
        raise typer.BadParameter(text, param_hint="--config")
    if config.suffix not in (".yaml", ".yml"):
        raise typer.BadParameter(f"{config} is no YAML file", param_hint="--config")
    loaded = load(config, cluster_faults)
    if (kafka := loaded.kafka) is None:  # refused above
        return
    if strimzi and kafka.bootstrap_servers != (address := bootstrap_address(strimzi)):
        text = f"kafka.bootstrap_servers is not {address}, where {strimzi} answers"
        raise typer.BadParameter(text, param_hint="--strimzi")
    rendered = manifests(loaded, kafka, config.read_text(), ClusterNames(image, secret, claim))
    if strimzi:
        rendered["kafka"] = cluster(strimzi)
    files = {out / f"{name}.yaml": objects for name, objects in rendered.items()}
    earlier = {*out.glob("node-*.yaml"), *out.glob("kafka.yaml")}
    if left := sorted(earlier - set(files)):
        text = f"{left[0]} is not of this run: remove it, or it would be applied too"
        raise typer.BadParameter(text, param_hint="--out")
    out.mkdir(parents=True, exist_ok=True)
    for path, objects in files.items():
        with whole_file(path) as file:
            file.write(as_yaml(objects).encode())
        typer.echo(path)
