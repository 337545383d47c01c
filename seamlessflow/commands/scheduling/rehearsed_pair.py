"""The option `--rehearse` of `seamlessflow demo`: two strategies, rehearsed in turn.

Each has its own directory and console. The second console shows the first run beside it.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from seamlessflow.commands.scheduling.rehearse import LATER

if TYPE_CHECKING:
    from seamlessflow.config import RunConfig
    from seamlessflow.processes.stopping import Stop
    from seamlessflow.rehearsal.rehearsal import Rehearsed
    from seamlessflow.watching.display import Display


def rehearse_pair(out: Path, steps: int | None, seed: int, with_console: bool) -> None:
    """Rehearse the same run by each strategy, and print their figures in a table.

    Raises `ConfigRejected`, and `typer.Exit` if a rehearsal failed or this machine distorted it.
    """
    from seamlessflow.demo.rehearsed import STEPS, STRATEGIES, rehearsed_config, write_work
    from seamlessflow.infra.errors import ExitStatus
    from seamlessflow.rehearsal.view import comparison
    from seamlessflow.terminal import long_job_console

    try:
        write_work(out, seed)
    except OSError as error:
        raise typer.BadParameter(f"{out}: {error.strerror}", param_hint="--out") from error
    configs = {name: rehearsed_config(out, name, steps or STEPS, seed=seed) for name in STRATEGIES}
    results: dict[str, Rehearsed] = {}
    for name, result in _rehearsed(configs, with_console):
        results[name] = result
        if result.outcome.failed:
            raise typer.Exit(ExitStatus.LASTING)
    console = long_job_console()
    console.print(comparison(results))
    for line in _ways_to_look([config.out for config in configs.values()]):
        console.print(line, highlight=False, soft_wrap=True)
    if any(result.distorted for result in results.values()):
        raise typer.Exit(ExitStatus.LASTING)


def _rehearsed(
    configs: Mapping[str, "RunConfig"], with_console: bool
) -> Iterator[tuple[str, "Rehearsed"]]:
    """Rehearse each run in turn, and yield its name and result once its figures are printed."""
    from seamlessflow.rehearsal.view import view
    from seamlessflow.runs.training_run import shown
    from seamlessflow.terminal import long_job_console

    console = long_job_console()
    ended: list[Path] = []
    for name, config in configs.items():
        console.print(f"rehearsal of {name} on {len(config.workers)} modelled devices")
        result = shown(config, console, _work(config), "rehearsal", LATER, with_console, ended)
        console.print(view(result))
        ended.append(config.out)
        yield name, result


def _work(config: "RunConfig") -> "Callable[[Display, Stop], Rehearsed]":
    from seamlessflow.rehearsal.rehearsal import rehearse

    return lambda display, stop: rehearse(config, display, stop)


def _ways_to_look(directories: Sequence[Path]) -> Iterator[str]:
    """Yield the commands that show both timelines again."""
    first, second = (shlex.quote(str(directory)) for directory in directories)
    yield f"both timelines in one page: seamlessflow console --out {second} --beside {first}"
    for name in (first, second):
        yield f"its own page: seamlessflow timeline --out {name} (picture: {name}/timeline.png)"
