"""Time that a worker takes from one role to the other, with generations in flight.

    python -m benchmarks switch [--switches 50] [--agents 64] [--out DIR]

A whole training on a real broker, with a model in the demo's shape: worker `w0` rolls out, `w1`
moves after every step (`load/alternation.py`), agents keep turns in flight on both
(`load/agents.py`). The times come from the records: to training from `RoleAssigned` until the
step's work begins, to rollout from `RoleAssigned` until the first token that `w1` reports. Phases
are named by their ends; `a: b` is a part of phase `a` that the process itself reports.
`tokens_lost` counts tokens in the whole run that a worker reported for a turn which it then handed
back, and that the finished turn lacks. Progress goes to standard error. `load` is the machine's
load average over a minute.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median, quantiles

from benchmarks.load.children import run_module
from benchmarks.recorded.switches import Switch, switches, tokens_lost
from seamlessflow.demo.configuration import KV_BYTES, MAX_CONTEXT, OPTIMIZER, WORKERS
from seamlessflow.demo.model import make_model
from seamlessflow.demo.task import make_tasks, write_tasks
from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.broker.programs import SHORT_LIVED
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import Record, Trajectory
from seamlessflow.schemas.topics import CONTROL, SESSIONS, TRAJECTORIES, Topic

MOVES = "w1"
_FIRST = 3
"""Switches left out at the start: the engine is built in the first one."""
_SPARE = 4
"""Further steps: a switch does not count if no turn comes before the next switch."""
_TASKS = 2_000


def main(argv: Sequence[str]) -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(prog="benchmarks switch", description=__doc__)
    parser.add_argument("--switches", type=int, default=50)
    parser.add_argument("--agents", type=int, default=64, help="sessions at once")
    parser.add_argument("--out", type=Path, help="where the run stays; else it is removed")
    asked = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        out = (asked.out or Path(scratch) / "run").resolve()
        _train(out, asked.switches + _FIRST + _SPARE, asked.agents)
        load = os.getloadavg()[0]
        with Broker(out / "kafka", java=SHORT_LIVED) as broker:
            control, sessions, trajectories = (
                _records(broker.settings, topic) for topic in (CONTROL, SESSIONS, TRAJECTORIES)
            )
    by_role = switches(MOVES, control, sessions)
    lost = tokens_lost(
        sessions, [trajectory for trajectory in trajectories if isinstance(trajectory, Trajectory)]
    )
    figures: dict[str, object] = {
        "benchmark": "switch",
        "agents": asked.agents,
        "tokens_lost": lost,
    }
    for role, all_of in by_role.items():
        figures |= _figures(f"to_{role}", all_of[_FIRST:][: asked.switches])
    print(json.dumps({**figures, "load": round(load, 1)}))


def _train(out: Path, steps: int, agents: int) -> None:
    """Train `steps` steps in `out`. Raises `CalledProcessError`."""
    out.mkdir(parents=True, exist_ok=True)
    make_model(out / "model", seed=0)
    write_tasks(make_tasks(_TASKS, 0, "train"), out / "tasks.jsonl")
    config = out / "run.yaml"  # JSON is YAML
    config.write_text(json.dumps(_config(out, steps, agents)), encoding="utf-8")
    run_module("seamlessflow", "train", "--config", str(config))


def _config(out: Path, steps: int, agents: int) -> Mapping[str, object]:
    engine = {"threads": 1, "kv_bytes": KV_BYTES}
    agent = "benchmarks.load.agents:steady"
    return {
        "out": str(out),
        "workers": WORKERS,
        "policy": {
            "model": str(out / "model"),
            "renderer": {"name": "qwen3"},
            "max_context": MAX_CONTEXT,
        },
        "run": {"steps": steps, "lag": 2, "groups_per_step": 12, "group_size": 8},
        "pacing": {"tasks": str(out / "tasks.jsonl")},
        "agents": {"callable": agent, "name": "steady", "concurrency": agents},
        "trainer": {"optimizer": OPTIMIZER, "threads": 1},
        "rollout": {"engine": "torch", "capacity": 64, "torch": engine},
        "scheduler": {"policy": "benchmarks.load.alternation:alternating"},
    }


def _records(settings: KafkaSettings, topic: Topic) -> list[Record]:
    return [received.record for received in read_topic(settings, topic, Skipped())]


def _figures(name: str, measured: Sequence[Switch]) -> dict[str, object]:
    """Return the times for switches in one direction, in milliseconds."""
    if len(measured) < 2:
        raise RuntimeError(f"{len(measured)} switches {name} were measured, at least 2 are needed")
    totals = [switch.total_ms for switch in measured]
    return {
        f"{name}_switches": len(measured),
        f"{name}_ms": _of(totals),
        f"{name}_handed_back": median(switch.handed_back for switch in measured),
        f"{name}_phases_ms": _by_phase(measured, lambda switch: switch.phases_ms),
        f"{name}_inside_ms": _by_phase(measured, lambda switch: switch.inside_ms),
    }


def _by_phase(
    measured: Sequence[Switch], phases: Callable[[Switch], Mapping[str, float]]
) -> dict[str, dict[str, float]]:
    names = dict.fromkeys(name for switch in measured for name in phases(switch))
    return {name: _of([phases(switch).get(name, 0.0) for switch in measured]) for name in names}


def _of(times_ms: Sequence[float]) -> dict[str, float]:
    """Return median, 95th percentile and maximum."""
    return {
        "median": round(median(times_ms), 1),
        "p95": round(quantiles(times_ms, n=20, method="inclusive")[-1], 1),
        "longest": round(max(times_ms), 1),
    }


if __name__ == "__main__":
    main(sys.argv[1:])
