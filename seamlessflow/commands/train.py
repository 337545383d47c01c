"""The commands that train on your own data: `seamlessflow train` and `sft`."""

from pathlib import Path
from typing import Annotated

import typer

from seamlessflow.commands.options import WithConsole
from seamlessflow.commands.settings import overview


def _settings(asked: bool) -> None:
    if asked:
        overview()
        raise typer.Exit


def train(
    config: Annotated[
        Path, typer.Option(help="Run configuration, YAML or TOML; see runbooks/local.md.")
    ],
    settings: Annotated[
        bool,
        typer.Option(
            "--settings",
            callback=_settings,
            is_eager=True,
            help="List the sections with settings, and exit.",
        ),
    ] = False,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from", help="Prefix of recorded trajectories to learn from, without any agent."
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(help="--from: prefix for the topics that it writes; by default the same."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="--from: wait for further sessions, up to run.steps.")
    ] = False,
    console: WithConsole = False,
) -> None:
    """Train a policy on your own tasks with your own agent; resumes the run in its directory.

    With --from it learns from sessions that `replay merge` or `import` wrote under a prefix. It
    then writes to OUT/PREFIX; see docs/replay.md.

    An environment variable such as SEAMLESSFLOW_RUN__STEPS=50 overrides run: {steps: 50} in the
    file.
    """
    from seamlessflow.checks.check import before_recorded_training, before_training
    from seamlessflow.config_file import every_task, load, no_task

    _check(from_, to, follow, console)
    check = before_training if from_ is None else before_recorded_training
    loaded = load(config, check, read_tasks=every_task if from_ is None else no_task)
    # Not earlier: a missing package is a fault that the check names.
    from seamlessflow.runs.training_run import run_recorded_training, run_training

    if from_ is None:
        run_training(loaded, with_console=console)
    else:
        run_recorded_training(loaded, from_, from_ if to is None else to, follow)


def _check(source: str | None, to: str | None, follow: bool, console: bool) -> None:
    """Raise `typer.BadParameter` for options that do not go together, and `ExtraMissing`."""
    from seamlessflow.checks.packages import require

    if source is None and (to is not None or follow):
        raise typer.BadParameter("--to and --follow need --from")
    if source is not None and console:
        raise typer.BadParameter("--console does not go with --from: start it by itself")
    if console:
        require("console", "starlette", "jinja2")


def sft(
    config: Annotated[Path, typer.Option(help="Run configuration, YAML or TOML.")],
    data: Annotated[
        Path, typer.Option(help='Conversations, one a line: {"messages": [...], "tools": [...]}.')
    ],
    epochs: Annotated[int, typer.Option(min=1, help="How many times the file is learned.")] = 1,
    batch: Annotated[int, typer.Option(min=1, help="Conversations in each step.")] = 16,
) -> None:
    """Fine-tune policy.model on the answers in conversations; resumes what is in OUT/sft.

    Writes OUT/sft/model, which a training's policy.model may name. Needs no Kafka. From
    trainer.loss, only the aggregation counts.
    """
    from seamlessflow.checks.check import before_fine_tuning
    from seamlessflow.config_file import load, no_task

    loaded = load(config, before_fine_tuning, read_tasks=no_task)
    # Not earlier: torch takes seconds, and a missing package is a fault that the check names.
    from seamlessflow.runs.supervised import fine_tune

    def begin(done: int, steps: int) -> None:
        behind = f"{done} of {steps} steps are done" if done else f"{steps} steps to do"
        every = loaded.trainer.checkpoint_every
        typer.echo(f"{behind}; a checkpoint every {every} steps (trainer.checkpoint_every)")

    typer.echo(f"the model is in {fine_tune(loaded, data, epochs, batch, _show, begin)}")


def _show(step: int, steps: int, metrics: dict[str, float]) -> None:
    loss = metrics["loss"]
    tokens = metrics["tokens_trained"]
    typer.echo(f"step {step} of {steps}: loss {loss:.4f}, {tokens:.0f} tokens")
