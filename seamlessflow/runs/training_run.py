"""Training as a command: shows its progress, prints its outcome. Shared by `demo` and `train`."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import typer
from rich.console import Console

from seamlessflow.config import RunConfig
from seamlessflow.device_defaults import in_words
from seamlessflow.infra.errors import ExitStatus
from seamlessflow.machine import this_machine
from seamlessflow.processes.console_beside import console_beside
from seamlessflow.processes.stopping import Interrupted, Stop, stoppable
from seamlessflow.reports.outcome import RunOutcome
from seamlessflow.reports.outcome_view import outcome_view
from seamlessflow.runs.recorded_training import Recording, configured, train_recorded
from seamlessflow.runs.training import HeldBackTasks, Prepare, train
from seamlessflow.terminal import long_job_console
from seamlessflow.watching.display import Display, display

T = TypeVar("T")
RESUMED = "the same command resumes what is in"
RENAMED = "the next demo begins anew and renames"


def run_training(
    config: RunConfig,
    prepare: Prepare | None = None,
    held_back: HeldBackTasks | None = None,
    later: str = RESUMED,
    with_console: bool = False,
) -> None:
    """Train to the end. `later` and `with_console` are as in `shown`.

    Raises `typer.Exit` if a fault was found or nothing was trained: a finished run stays as it is.
    """
    long_job_console().print(
        in_words(config, this_machine().gpus or 0), markup=False, highlight=False
    )
    _run(
        config,
        lambda progress, stop: train(config, progress, stop, prepare, held_back),
        later,
        with_console,
    )


def run_recorded_training(config: RunConfig, source: str, to: str, follow: bool) -> None:
    """Train on the sessions under the prefix `source`. Raises what `run_training` raises."""
    recording = Recording(source, to, follow)
    settings = configured(config, recording)
    _run(settings, lambda progress, stop: train_recorded(settings, recording, progress, stop))


def shown(
    config: RunConfig,
    console: Console,
    work: Callable[[Display, Stop], T],
    what: str = "run",
    later: str = RESUMED,
    with_console: bool = False,
    beside: Sequence[Path] = (),
) -> T:
    """Do `work` in `config.out`, which shows its progress; return its result.

    Exits with the status for an interruption if the user asked to stop. `later` says what becomes
    of the directory if the user does not wait for the end. `with_console`: serve pages meanwhile,
    with the runs in the directories `beside`.
    """
    left = (
        f"processes of the {what} end by themselves within seconds, their logs are in "
        f"{config.logs_dir}; {later} {config.out}"
    )
    try:
        with (
            stoppable(left) as stop,
            _console(config.out, beside, console, with_console),
            display(console, config.run.policy) as progress,
        ):
            return work(progress, stop)
    except Interrupted:
        console.print(f"stopped as asked; the {what} so far is in {config.out}")
        console.print(f"its device time: seamlessflow timeline --out {config.out}")
        sys.exit(Interrupted.status)


@contextmanager
def _console(out: Path, beside: Sequence[Path], console: Console, wanted: bool) -> Iterator[None]:
    if not wanted:
        yield
        return
    with console_beside(out, beside) as address:
        console.print(f"its pages, while it runs: {address}", highlight=False)
        yield


def _run(
    config: RunConfig,
    work: Callable[[Display, Stop], RunOutcome],
    later: str = RESUMED,
    with_console: bool = False,
) -> None:
    console = long_job_console()
    outcome = shown(config, console, work, later=later, with_console=with_console)
    console.print(outcome_view(outcome))
    if outcome.failed:
        raise typer.Exit(ExitStatus.LASTING)
