"""The commands on a version of a policy: `seamlessflow eval` and `merge`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from seamlessflow.runs.evaluation_run import EvaluationRun


def _sampled(temperature: float | None) -> float | None:
    """Return a temperature at which engines sample. Raises `BadParameter`."""
    from seamlessflow.infra.settings import COLDEST

    if temperature is not None and 0 < temperature < COLDEST:
        raise typer.BadParameter(f"must be 0 (greedy), or {COLDEST:g} or more")
    return temperature


Temperature = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=2,
        callback=_sampled,
        help="Sampling temperature, 0: greedy; by default that of evaluation.sampling.",
    ),
]


def evaluate(
    config: Annotated[Path, typer.Option(help="Run configuration, YAML or TOML.")],
    tasks: Annotated[
        Path | None,
        typer.Option(help="Tasks, a JSON object a line; by default those of the configuration."),
    ] = None,
    chosen: Annotated[
        str | None, typer.Option("--set", help="One of evaluation.sets; by default all, in turn.")
    ] = None,
    version: Annotated[
        int | None, typer.Option(min=0, help="Policy version of the run; by default the newest.")
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="A model to evaluate instead of a version: as policy.model.")
    ] = None,
    temperature: Temperature = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only the first tasks, of each set.")
    ] = None,
) -> None:
    """Run the agent on tasks with a policy version and report the mean reward.

    Its sessions never reach an optimizer step; data, logs and evaluation.json are written below
    OUT/evaluations.
    """
    from seamlessflow.config_file import evaluated, load, no_task
    from seamlessflow.console import clean_console
    from seamlessflow.infra.weights.versions import lease
    from seamlessflow.named_models import named_directory
    from seamlessflow.processes.stopping import Interrupted, stoppable
    from seamlessflow.runs.chosen_weights import choose_weights
    from seamlessflow.runs.evaluation_run import evaluation_check, run_evaluation
    from seamlessflow.watching.display import display

    console = clean_console(highlight=False)
    directory = None if weights is None else named_directory("--weights", weights)
    check = evaluation_check(version, directory, tasks, chosen)
    loaded = load(config, check, read_tasks=evaluated if tasks is None else no_task)
    policy = choose_weights(loaded, version, directory)
    try:
        with (
            # The run may go on, and delete the version before the evaluation has its copy.
            lease(policy.directory),
            stoppable() as stop,
            display(console, loaded.run.policy) as shown,
        ):
            ended = run_evaluation(loaded, policy, tasks, limit, shown, stop, chosen, temperature)
    except Interrupted:
        sys.exit(Interrupted.status)
    _report(console, ended)


def _report(console: "Console", ended: "EvaluationRun") -> None:
    """Print the figures. Raises `typer.Exit` if no session of a set counted."""
    from seamlessflow.runs.evaluation_run import lines

    for line in lines(ended):
        console.print(line)
    if any(result.reward is None for result in ended.results.values()):
        raise typer.Exit(1)


def merge(
    config: Annotated[Path, typer.Option(help="Run configuration, YAML or TOML.")],
    to: Annotated[Path, typer.Option(help="Directory to write; it must not exist.")],
    version: Annotated[
        int | None, typer.Option(min=0, help="Policy version of the run; by default the newest.")
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="Policy of a run of several; by default the first.")
    ] = None,
) -> None:
    """Write a policy that was trained as an adapter (trainer.adapter) as a whole model.

    The directory has all that other programs load: weights, configuration and tokenizer.
    """
    from seamlessflow.config_file import load, no_task

    loaded = load(config, read_tasks=no_task)
    # Not earlier: it imports torch, which takes seconds.
    from seamlessflow.runs.whole_model import write_merged

    chosen = write_merged(loaded, to, version, policy)
    typer.echo(f"version {chosen.version} of {chosen.base}, merged, is in {to}")
