"""The command `python -m scheduler.simulation`: strategies compared on a modelled cluster.

It simulates the run once for each strategy and prints a table, to choose tags before a run; it
needs neither Kafka nor a device. The options describe the cluster. The run comes from the same
settings as for `python -m scheduler`, such as `SEAMLESSFLOW_RUN__LAG`.
"""

import argparse
import math
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from infra.errors import SeamlessFlowError
from infra.settings import load
from scheduler.decisions.strategies import STRATEGIES
from scheduler.settings import RunSection, SchedulerSettings
from scheduler.simulation.fleet import ClusterModel
from scheduler.simulation.simulator import SimulatedRun, simulate

WARM_UP_STEPS = 2
"""Steps that no figure covers: the first ones wait for the first rollouts."""
SLOWEST = 10
"""A run ends when it takes this many times as long as a single worker would need for its work."""


class OneLineParser(argparse.ArgumentParser):
    """A parser that reports an error without the usage."""

    def error(self, message: str) -> NoReturn:
        """End the process with the message."""
        sys.exit(message)


def main(arguments: list[str] | None = None) -> None:
    """Print a line for each strategy; end with status 1 and one line if an input is wrong."""
    chosen = _parser().parse_args(arguments)
    cluster = ClusterModel(
        workers={
            **{f"rollout-{n}": ("rollout",) for n in range(chosen.rollout)},
            **{f"train-{n}": ("train",) for n in range(chosen.train)},
            **{f"both-{n}": ("rollout", "train") for n in range(chosen.both)},
        },
        sample_ms=chosen.sample_ms,
        spread=chosen.spread,
        train_ms=chosen.train_ms,
        switch_ms=chosen.switch_ms,
        seed=chosen.seed,
    )
    settings = load(SchedulerSettings)
    print(f"{'strategy':<16}{'s a step':>10}{'idle':>8}{'staleness':>11}")
    try:
        for strategy in chosen.strategies:
            print(_line(strategy, _run(settings, cluster, strategy), settings.run), flush=True)
    except SeamlessFlowError as error:
        sys.exit(str(error))


def _run(settings: SchedulerSettings, cluster: ClusterModel, strategy: str) -> SimulatedRun:
    run = settings.run
    section = settings.scheduler.model_copy(update={"policy": strategy})
    # The simulator makes its own tasks, but only a scheduler that has a file of tasks paces groups.
    pacing = settings.pacing.model_copy(update={"tasks": Path("simulated")})
    step_ms = run.groups_per_step * run.group_size * cluster.sample_ms + cluster.train_ms
    return simulate(
        settings.model_copy(update={"scheduler": section, "pacing": pacing}),
        cluster,
        longest_ms=SLOWEST * run.steps * (step_ms + 2 * cluster.switch_ms),
        on_step=_progress(strategy, run.steps),
    )


def _progress(strategy: str, steps: int) -> Callable[[int], None]:
    """Return a function that shows the number of steps on a terminal, in one line."""

    def show(done: int) -> None:
        if sys.stderr.isatty():
            end = "\r" if done < steps else "\r\x1b[K"  # the table's line takes its place
            print(f"{strategy}: step {done} of {steps}", end=end, file=sys.stderr, flush=True)

    return show


def _line(strategy: str, run: SimulatedRun, wanted: RunSection) -> str:
    ends = run.step_ends()
    if len(ends) < max(wanted.steps, WARM_UP_STEPS + 2):
        ended_s = run.ended_ms / 1000
        return f"{strategy:<16}  no figures: {len(ends)} of {wanted.steps} steps in {ended_s:.0f} s"
    measured = ends[WARM_UP_STEPS:]
    step_s = (measured[-1] - measured[0]) / (len(measured) - 1) / 1000
    idle = run.idle_share(WARM_UP_STEPS)
    return f"{strategy:<16}{step_s:>10.2f}{idle:>8.1%}{max(run.staleness):>11}"


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="python -m scheduler.simulation",
        description="Compares strategies on a modelled cluster.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--rollout", type=int, default=2, help="workers with the tag rollout alone")
    add("--train", type=int, default=0, help="workers with the tag train alone")
    add("--both", type=int, default=2, help="workers with both tags")
    add("--strategies", nargs="+", default=list(STRATEGIES), help="names, or module:function")
    add("--sample-ms", type=_number, default=100, help="worker time of a sample's rollout")
    add("--spread", type=_number, default=0, help="standard deviation of that time's logarithm")
    add("--train-ms", type=_number, default=1000, help="worker time of a step's training")
    add("--switch-ms", type=_number, default=0, help="time that a change of role takes")
    add("--seed", type=int, default=0, help="seed of the spread")
    return parser


def _number(text: str) -> float:
    with suppress(ValueError):
        if 0 <= float(text) < math.inf:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0")


if __name__ == "__main__":
    main()
