"""Scheduler: decisions a second with many workers, and draws from a large task file.

    python -m benchmarks scheduler [--workers 1000] [--tasks 1000000]

The cluster is simulated until its second step is under way. Then the scheduler's three costs are
timed, each by itself and in this process's CPU time: a call to `decide`, the fold of a `control`
record (`RoleAcquired`), and the fold of a `fleet` heartbeat. The agents' work is small, so that
most records are about workers: half of them may train. For the task file: the time to open it, the
memory that this takes, and a draw's time.
"""

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from seamlessflow.infra.device_model.settings import DeviceModelSection
from seamlessflow.infra.process import collect_seldom
from seamlessflow.infra.worker.updates import UpdateSection
from seamlessflow.lab.simulation.cluster import modelled
from seamlessflow.lab.simulation.settings import SimulationSection
from seamlessflow.lab.simulation.simulator import simulate, simulated_rules
from seamlessflow.lab.simulation.workload import Workload
from seamlessflow.scheduler.decisions.decide import View, decide
from seamlessflow.scheduler.settings import RunSection, SchedulerSettings
from seamlessflow.scheduler.state import fleet, state
from seamlessflow.scheduler.tasks.file import read
from seamlessflow.schemas import records as r

_CALLS = 100
_DRAWS = 10_000


def main(argv: Sequence[str]) -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(prog="benchmarks scheduler", description=__doc__)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    asked = parser.parse_args(argv)
    figures = {"benchmark": "scheduler", "workers": asked.workers, **_decisions(asked.workers)}
    print(json.dumps({**figures, "tasks": asked.tasks, **_draws(asked.tasks)}))


def _decisions(workers: int) -> dict[str, float]:
    settings = SchedulerSettings(run=RunSection(steps=3, groups_per_step=64, group_size=8))
    view, now_ms = _running(settings, workers)
    collect_seldom()  # as the scheduler does
    rules = simulated_rules(settings, workers)
    name, member = next(
        (name, worker) for name, worker in view.state.workers.items() if worker.assignment
    )
    number = member.assignment.number if member.assignment else 0
    acquired = r.RoleAcquired(
        worker=name,
        incarnation=name,
        role="rollout",
        assignment=number,
        took_ms=1,
        at_ms=now_ms,
    )
    beat = r.WorkerHeartbeat(
        worker=name,
        incarnation=name,
        process="rollout",
        tags=("rollout",),
        role="rollout",
        assignment=number,
        state="ready",
        hardware={},
        devices=(0,),
        at_ms=now_ms,
    )
    control_s = _each_s(lambda: state.apply(view.state, acquired))
    heartbeat_s = _each_s(lambda: fleet.apply(view.fleet, beat, now_ms))
    return {
        "decisions_a_second": round(1 / _each_s(lambda: decide(view, rules, now_ms)), 1),
        "control_fold_us": round(1e6 * control_s, 1),
        "heartbeat_fold_us": round(1e6 * heartbeat_s, 1),
    }


def _draws(tasks: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tasks.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for number in range(tasks):
                file.write(f'{{"id": "task-{number}", "prompt": "{"x" * 200}"}}\n')
        before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began_s = time.perf_counter()
        source = read(path)
        open_s = time.perf_counter() - began_s
        used_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb
        began_s = time.perf_counter()
        for number in range(_DRAWS):
            source.draw(number)
        draw_us = 1e6 * (time.perf_counter() - began_s) / _DRAWS
    figures = {"open_s": open_s, "memory_mb": used_kb / 1024, "draw_us": draw_us}
    return {name: round(value, 2) for name, value in figures.items()}


def _running(settings: SchedulerSettings, workers: int) -> tuple[View, int]:
    """Return the scheduler's view in the middle of the simulated run, and its time."""
    lots = [
        {"count": workers // 2, "tags": ("rollout",), "devices": 8},
        {"count": workers - workers // 2, "tags": ("rollout", "train"), "devices": 8},
    ]
    section = SimulationSection.model_validate({"workers": lots})
    cluster = modelled(section, DeviceModelSection(), UpdateSection())
    whole = simulate(settings, cluster, Workload(section.workload, section.seed))
    first = next(record.at_ms for record in whole.control if isinstance(record, r.StepCompleted))
    half_s = (first / 1000 + whole.ended_s) / 2
    run = simulate(settings, cluster, Workload(section.workload, section.seed), half_s)
    return replace(run.view), round(1000 * run.ended_s)


def _each_s(call: Callable[[], object]) -> float:
    """Return a call's CPU time, in seconds."""
    call()
    before = time.process_time()
    for _ in range(_CALLS):
        call()
    return (time.process_time() - before) / _CALLS


if __name__ == "__main__":
    main(())
