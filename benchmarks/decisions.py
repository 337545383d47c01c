"""Decisions of the scheduler a second, with many workers.

    python -m benchmarks decisions [--workers 1000]

The cluster is simulated until its second step is under way. Then the three costs of the scheduler
are timed, each alone and in CPU time of this process: a call of `decide`, the fold of a record of
`control` (`RoleAcquired`), and the fold of a heartbeat of `fleet`. The agents' work is small, so
that most of the records are about workers: half of them may train.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from infra.device_model.settings import DeviceModelSection
from scheduler.decisions.decide import View, decide
from scheduler.settings import PacingSection, RunSection, SchedulerSettings
from scheduler.simulation.cluster import modelled
from scheduler.simulation.settings import SimulationSection
from scheduler.simulation.simulator import simulate, simulated_rules
from scheduler.simulation.workload import Workload
from scheduler.state import fleet, state
from schemas import records as r

_CALLS = 100


def main(argv: Sequence[str]) -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(prog="benchmarks decisions", description=__doc__)
    parser.add_argument("--workers", type=int, default=1000)
    workers = parser.parse_args(argv).workers
    settings = _settings()
    view, now_ms = _running(settings, workers)
    rules = simulated_rules(settings, workers)
    worker = next(name for name, one in view.state.workers.items() if one.assignment)
    given = view.state.workers[worker].assignment
    number = given.number if given else 0
    acquired = r.RoleAcquired(
        worker=worker,
        incarnation=worker,
        role="rollout",
        assignment=number,
        took_ms=1,
        at_ms=now_ms,
    )
    beat = r.WorkerHeartbeat(
        worker=worker,
        incarnation=worker,
        process="rollout",
        tags=("rollout",),
        role="rollout",
        assignment=number,
        state="ready",
        hardware={},
        devices=(0,),
        at_ms=now_ms,
    )
    decide_s = _each_s(lambda: decide(view, rules, now_ms))
    print(
        json.dumps(
            {
                "benchmark": "decisions",
                "workers": workers,
                "decisions_a_second": round(1 / decide_s, 1),
                "control_fold_us": round(1e6 * _each_s(lambda: state.apply(view.state, acquired))),
                "heartbeat_fold_us": round(
                    1e6 * _each_s(lambda: fleet.apply(view.fleet, beat, now_ms))
                ),
            }
        )
    )


def _settings() -> SchedulerSettings:
    return SchedulerSettings(
        run=RunSection(steps=3, groups_per_step=64, group_size=8),
        pacing=PacingSection(tasks=Path("simulated")),
    )


def _running(settings: SchedulerSettings, workers: int) -> tuple[View, int]:
    """Return the scheduler's view in the middle of the simulated run, and its time."""
    lots = [
        {"count": workers // 2, "tags": ("rollout",), "devices": 8},
        {"count": workers - workers // 2, "tags": ("rollout", "train"), "devices": 8},
    ]
    section = SimulationSection.model_validate({"workers": lots})
    cluster = modelled(section, DeviceModelSection())
    whole = simulate(settings, cluster, Workload(section.workload, section.seed))
    first = next(one.at_ms for one in whole.control if isinstance(one, r.StepCompleted))
    half_s = (first / 1000 + whole.ended_s) / 2
    run = simulate(settings, cluster, Workload(section.workload, section.seed), half_s)
    return replace(run.view), round(1000 * run.ended_s)


def _each_s(call: Callable[[], object]) -> float:
    """Return the CPU time of a call, in seconds."""
    call()
    before = time.process_time()
    for _ in range(_CALLS):
        call()
    return (time.process_time() - before) / _CALLS


if __name__ == "__main__":
    main(())
