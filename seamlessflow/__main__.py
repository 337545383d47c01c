"""The command line `seamlessflow`.

Each command imports its dependencies when it runs, so that `--help` answers at once.
"""

import signal
import sys
from typing import Annotated

import typer

from seamlessflow.commands import dead_letters, environments, render, schemas, topics
from seamlessflow.commands.audit import audit
from seamlessflow.commands.boards import boards
from seamlessflow.commands.conform import conform
from seamlessflow.commands.console import console
from seamlessflow.commands.demo import demo
from seamlessflow.commands.doctor import doctor
from seamlessflow.commands.evaluation import evaluate
from seamlessflow.commands.recorded import replay, share
from seamlessflow.commands.recorded.erase import erase
from seamlessflow.commands.recorded.export import export
from seamlessflow.commands.recorded.import_files import import_files
from seamlessflow.commands.recorded.judge import judge
from seamlessflow.commands.recorded.stops import stops
from seamlessflow.commands.report import report
from seamlessflow.commands.scheduling.plan import plan
from seamlessflow.commands.scheduling.rehearse import rehearse
from seamlessflow.commands.scheduling.simulate import simulate
from seamlessflow.commands.scheduling.timeline import timeline
from seamlessflow.commands.settings import methods, settings
from seamlessflow.commands.shapley import shapley
from seamlessflow.commands.show import show, trace
from seamlessflow.commands.train import sft, train
from seamlessflow.commands.versions import merge
from seamlessflow.commands.workers import node, worker
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.host import ending_signals
from seamlessflow.outputs import guard_outputs, is_lost
from seamlessflow.processes.stopping import Interrupted
from seamlessflow.schemas.releases import this_release

app = typer.Typer(
    name="seamlessflow",
    help="Reinforcement learning for LLM agents over Apache Kafka.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(demo)
app.command()(train)
app.command()(settings)
app.command()(methods)
app.command(name="eval")(evaluate)
app.command()(shapley)
app.command()(conform)
app.command()(sft)
app.command()(merge)
app.command()(simulate)
app.command()(plan)
app.command()(rehearse)
app.command()(node)
app.command()(worker)
app.command()(show)
app.command()(trace)
app.command()(timeline)
app.command()(boards)
app.command()(console)
app.command()(report)
app.command()(audit)
app.command()(erase)
app.command()(doctor)
app.command()(export)
app.command()(stops)
app.command()(judge)
app.command(name="import")(import_files)
app.add_typer(replay.app, name="replay")
app.add_typer(share.app, name="share")
app.add_typer(environments.app, name="environments")
app.add_typer(render.app, name="render")
app.add_typer(topics.app, name="topics")
app.add_typer(schemas.app, name="schemas")
app.add_typer(dead_letters.app, name="dlq")


@app.callback(invoke_without_command=True)
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version, and exit.")
    ] = False,
) -> None:
    """Reinforcement learning for LLM agents over Apache Kafka."""
    if version:
        print(this_release().version)
        raise typer.Exit


def main() -> None:
    """Run the command line; print this project's errors, and end with their status."""
    for number in ending_signals():  # until a command installs its own handlers
        signal.signal(number, _interrupt)
    guard_outputs()
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except OSError as error:
        if not is_lost(sys.stdout):
            raise
        print(f"seamlessflow: nothing can be printed ({error})", file=sys.stderr)
        sys.exit(1)
    except SeamlessFlowError as error:
        print(f"seamlessflow: {error}", file=sys.stderr)
        sys.exit(error.process_status(ready=False))
    except Interrupted:
        print("seamlessflow: stopped as asked", file=sys.stderr)
        sys.exit(Interrupted.status)


def _interrupt(*_: object) -> None:
    raise Interrupted


if __name__ == "__main__":
    main()
