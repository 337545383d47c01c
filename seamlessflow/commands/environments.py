"""The commands `seamlessflow environments list` and `install`."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from seamlessflow.producers.agents.environments.known import KnownEnvironment

app = typer.Typer(help="Environment packages: their tasks and episodes as a run's agent.")

PackageName = Annotated[str, typer.Argument(metavar="NAME", help="As `environments list` has it.")]


@app.command(name="list")
def list_() -> None:
    """List the packages that have an adapter, and which versions are installed."""
    from seamlessflow.producers.agents.environments.known import KNOWN
    from seamlessflow.producers.agents.environments.venvs import is_installed, versions

    for name, package in KNOWN.items():
        installed = ", ".join(f"{part} {at}" for part, at in versions(package).items())
        state = installed if is_installed(package) else f"seamlessflow environments install {name}"
        typer.echo(f"{name:<16} {package.what}\n{'':<16} {state}")


@app.command()
def install(name: PackageName) -> None:
    """Install a package and all that it needs, in an environment of its own."""
    from seamlessflow.producers.agents.environments.venvs import install as made

    python = made(_known(name), lambda line: typer.echo(line, err=True))
    typer.echo(python)


def _known(name: str) -> "KnownEnvironment":
    from seamlessflow.infra.faults import suggestion
    from seamlessflow.producers.agents.environments.known import KNOWN

    if name not in KNOWN:
        text = f"there is no environment {name!r}, but {', '.join(KNOWN)}{suggestion(name, KNOWN)}"
        raise typer.BadParameter(text, param_hint="NAME")
    return KNOWN[name]
