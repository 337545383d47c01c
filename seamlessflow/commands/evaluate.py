"""The command `seamlessflow eval`: a policy version on a task set, apart from training."""

import sys
from pathlib import Path
from typing import Annotated

import typer


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
        Path | None, typer.Option(help="A Hugging Face directory to evaluate instead of a version.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only the first tasks, of each set.")
    ] = None,
) -> None:
    """Run the agent on tasks with a policy version and report the mean reward.

    Its sessions never reach an optimizer step; data, logs and evaluation.json are written below
    OUT/evaluations.
    """
    from infra.weights.versions import lease
    from seamlessflow.config_file import load
    from seamlessflow.console import clean_console
    from seamlessflow.processes.stopping import Interrupted, stoppable
    from seamlessflow.runs.chosen_weights import choose_weights
    from seamlessflow.runs.evaluation_run import evaluation_check, lines, run_evaluation
    from seamlessflow.watching.display import display

    console = clean_console(highlight=False)

    loaded = load(config, evaluation_check(version, weights, tasks, chosen))
    policy = choose_weights(loaded, version, weights)
    try:
        with (
            # The run may go on, and delete the version before the evaluation has its copy.
            lease(policy.directory),
            stoppable() as stop,
            display(console, loaded.run.policy) as shown,
        ):
            ended = run_evaluation(loaded, policy, tasks, limit, shown, stop, chosen)
    except Interrupted:
        sys.exit(130)
    for line in lines(ended):
        console.print(line)
    if any(result.reward is None for result in ended.results.values()):
        raise typer.Exit(1)
