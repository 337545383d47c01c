"""The commands `seamlessflow environments list`, `install` and `doctor`."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seamlessflow.commands.options import AsJson

if TYPE_CHECKING:
    from seamlessflow.config import RunConfig
    from seamlessflow.producers.agents.environments.known import KnownEnvironment
    from seamlessflow.producers.agents.settings import AgentsSection
    from seamlessflow.tryout.facts import Tryout

app = typer.Typer(help="Environment packages: their tasks and episodes, used as a run's agent.")

PackageName = Annotated[
    str, typer.Argument(metavar="NAME", help="Package name, as `environments list` shows it.")
]


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
    """Install a package and all that it needs, in its own Python environment."""
    from seamlessflow.producers.agents.environments.venvs import install as made

    python = made(_known(name), lambda line: typer.echo(line, err=True))
    typer.echo(python)


@app.command()
def doctor(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="As `environments list` has it, or FILE.py."),
    ] = None,
    settings: Annotated[
        str | None, typer.Option(help="Settings for the environment: JSON, or a YAML file.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="Run configuration with the environment and the model.")
    ] = None,
    python: Annotated[
        Path | None,
        typer.Option(help="Python for the environment, as in agents.environment_python."),
    ] = None,
    tasks: Annotated[int, typer.Option(min=1, help="Episodes to play, from the first tasks.")] = 1,
    said: Annotated[
        list[str] | None,
        typer.Option("--say", help="What the policy says; repeat for further turns."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory for logs and data; by default they are not kept.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Play an episode against a scripted policy, and say what a run would make of it.

    Gateway, manager and log are the same as in a run. The policy calls the tools that it is
    offered, then says its words. The exit status is 1 if a run could not train on it as it is, and
    78 if the environment cannot be started.
    """
    from seamlessflow.processes.stopping import Interrupted, stoppable
    from seamlessflow.tryout.policy import TEXTS
    from seamlessflow.tryout.tryout import TryoutPlan, try_out

    run = None if config is None else _run_of(config)
    agents = _agents(name, settings, python, run)
    with _directory(out) as place:
        plan = TryoutPlan(agents, place, run, tasks, tuple(said or TEXTS))
        try:
            with stoppable() as stop:
                tried = try_out(plan, stop, lambda line: typer.echo(line, err=True))
        except Interrupted:
            raise typer.Exit(Interrupted.status) from None
    _report(tried, as_json)


def _run_of(config: Path) -> "RunConfig":
    from seamlessflow.config_file import load, no_task
    from seamlessflow.named_models import Fetched

    return load(config, fetched=Fetched.WITHOUT_WEIGHTS, read_tasks=no_task)


def _agents(
    name: str | None, settings: str | None, python: Path | None, run: "RunConfig | None"
) -> "AgentsSection":
    """Return the section that names the environment. Raises `BadParameter`."""
    from seamlessflow.producers.agents.settings import AgentsSection

    agents = AgentsSection() if run is None else run.agents
    if name is None and not agents.environment:
        raise typer.BadParameter("name one, or a --config that has one", param_hint="NAME")
    chosen: dict[str, Any] = {}
    if name is not None and name != agents.environment:
        chosen = {"environment": name, "settings": {}, "environment_python": None}
    if settings is not None:
        chosen["settings"] = _settings(settings)
    if python is not None:
        chosen["environment_python"] = python
    return agents.model_copy(update=chosen)


def _settings(text: str) -> Mapping[str, Any]:
    """Return settings from JSON, or from a YAML file. Raises `BadParameter`."""
    import yaml

    from seamlessflow.infra.plain_yaml import read_yaml

    try:
        begins_inline = text.lstrip().startswith("{")
        values = json.loads(text) if begins_inline else read_yaml(Path(text).read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise typer.BadParameter(str(error), param_hint="--settings") from error
    if not isinstance(values, dict):
        raise typer.BadParameter("is no mapping of settings", param_hint="--settings")
    return values


@contextmanager
def _directory(out: Path | None) -> Iterator[Path]:
    """Yield `out`, made if missing, or a temporary directory that is removed at the end.

    Raises `BadParameter` if `out` is not empty.
    """
    if out is None:
        with tempfile.TemporaryDirectory(
            prefix="seamlessflow-", ignore_cleanup_errors=True
        ) as made:
            yield Path(made)
        return
    if out.exists() and any(out.iterdir()):
        raise typer.BadParameter(f"{out} is not empty", param_hint="--out")
    out.mkdir(parents=True, exist_ok=True)
    yield out.absolute()


def _report(tried: "Tryout", as_json: bool) -> None:
    """Print the findings. Raises `typer.Exit` with 1 if one of them failed."""
    from seamlessflow.commands.doctor import show
    from seamlessflow.inspection.findings import failed
    from seamlessflow.tryout.report import as_json as facts_of
    from seamlessflow.tryout.report import findings

    results = findings(tried)
    if as_json:
        typer.echo(json.dumps(facts_of(tried), indent=2))
    else:
        show(results)
    if failed(results):
        raise typer.Exit(1)


def _known(name: str) -> "KnownEnvironment":
    from seamlessflow.infra.faults import suggestion
    from seamlessflow.producers.agents.environments.known import KNOWN

    if name not in KNOWN:
        text = f"there is no environment {name!r}, but {', '.join(KNOWN)}{suggestion(name, KNOWN)}"
        raise typer.BadParameter(text, param_hint="NAME")
    return KNOWN[name]
