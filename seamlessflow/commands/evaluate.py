"""The command `seamlessflow eval`: a policy version on a task set, apart from training."""

import sys
from pathlib import Path
from typing import Annotated

import typer


def evaluate(
    config: Annotated[Path, typer.Option(help="Run configuration, YAML or TOML.")],
    tasks: Annotated[
        Path | None,
        typer.Option(help="Tasks, a JSON object a line; by default evaluation.tasks."),
    ] = None,
    version: Annotated[
        int | None, typer.Option(min=0, help="Policy version of the run; by default the newest.")
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="A Hugging Face directory to evaluate instead of a version.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first tasks.")] = None,
) -> None:
    """Run the agent on tasks with a policy version and report the mean reward.

    Its sessions never reach an optimizer step; data, logs and evaluation.json are written below
    OUT/evaluations.
    """
    from rich.console import Console

    from infra.weights.versions import lease
    from seamlessflow.config_file import load
    from seamlessflow.processes.stopping import Interrupted, stoppable
    from seamlessflow.runs.chosen_weights import choose_weights
    from seamlessflow.runs.evaluation_run import evaluation_check, run_evaluation
    from seamlessflow.watching.display import display

    console = Console(highlight=False)

    loaded = load(config, evaluation_check(version, weights, tasks))
    chosen = choose_weights(loaded, version, weights)
    try:
        with (
            # The run may go on, and delete the version before the evaluation has its copy.
            lease(chosen.directory),
            stoppable() as stop,
            display(console, loaded.run.policy) as shown,
        ):
            ended = run_evaluation(loaded, chosen, tasks, limit, shown, stop)
    except Interrupted:
        sys.exit(130)
    result = ended.result
    if result.reward is None:
        console.print("no session counted; see the logs of agents and gateway in", ended.out)
        raise typer.Exit(1)
    error = f" ± {result.error:.4f}" if result.error is not None else ""
    console.print(f"mean reward {result.reward:.4f}{error} over {result.sessions} sessions")
    console.print(f"version {chosen.version}, {result.failed} failed, {result.missing} missing")
    console.print(f"data, logs and figures are in {ended.out}")
