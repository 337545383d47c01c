"""`scripts/test-algorithms`: whole runs that together have every named setting of an algorithm.

Each run of `table.py` is a training with `seamlessflow train` on the game Trail, whose trainer is
killed once with a step behind its checkpoint. It has to end by itself, with the tensors of the
steps that were executed again as they were; `audit` has to find nothing, `replay train` equal
tensors in every step, and metrics, symptoms and logs are held against what the settings promise.
Each run has an embedded Kafka of its own.

With `--out`, runs that were ok there are not made again, so that a table that was cut off goes on.
"""

import argparse
import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from transformers.utils import logging as transformers_logging

from benchmarks.learning.curves import prepared
from seamlessflow.config_file import parse
from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.broker.programs import JavaOptions
from seamlessflow.processes.stopping import Interrupted, Stop, stoppable
from tests.algorithms.checks import (
    audit_faults,
    exploration_faults,
    file_faults,
    log_faults,
    replay_faults,
)
from tests.algorithms.promises import promised, untested
from tests.algorithms.run_settings import GROUPS, MINE, STEPS, WholeRun
from tests.algorithms.table import RUNS
from tests.algorithms.trail_run import write_run
from tests.algorithms.whole_run import Commands, RunFailed
from tests.paths import ROOT

METHODS = ROOT / "examples" / "methods"
_SUMMARY = "summary.json"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of a run of the table: no faults if it is ok."""

    name: str
    took_s: float
    killed_at: int
    faults: tuple[str, ...]


def main() -> int:
    """Train the named runs; return 1 if anything is wrong, 130 behind Ctrl-C."""
    asked = _arguments()
    out = asked.out.resolve()
    places = out / "place", out / "place", out / "place"
    if missing := untested([parse(run.values(*places)).trainer for run in RUNS.values()]):
        print(f"no run has {', '.join(missing)}: add it to tests/algorithms/table.py")
        return 1
    names = asked.names or list(RUNS)
    if unknown := sorted(set(names) - RUNS.keys()):
        print(f"no run {', '.join(unknown)}; there are {', '.join(RUNS)}")
        return 1
    verdicts = _known(out)
    try:
        with stoppable() as stop:
            _train([name for name in names if name not in verdicts], out, stop, verdicts)
    except Interrupted:
        print("\nstopped as asked")
        return Interrupted.status
    failed = [name for name, verdict in verdicts.items() if verdict.faults]
    print(f"{len(verdicts) - len(failed)} of {len(verdicts)} runs ok", end="")
    print(f"; failed: {', '.join(failed)}" if failed else "")
    return int(bool(failed))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/test-algorithms",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="run of the table; default: all")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(".seamlessflow/test-algorithms") / time.strftime("%Y%m%d-%H%M%S"),
        help="directory for everything that is written",
    )
    return parser.parse_args()


def _train(names: Sequence[str], out: Path, stop: Stop, verdicts: dict[str, Verdict]) -> None:
    print(
        f"runs, summary.json and summary.md are in {out}; preparing model and teacher", flush=True
    )
    torch.set_num_threads(1)
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    data, teacher = prepared(0, out), prepared(1, out) / "model"
    tasks = (data / "tasks" / "train.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (data / "tasks" / "few.jsonl").write_text("".join(tasks[:GROUPS]), encoding="utf-8")
    for place, name in enumerate(names, 1):
        print(f"[{place}/{len(names)}] {name:22}", end="", flush=True)
        shutil.rmtree(out / name, ignore_errors=True)  # of a run that was cut off or failed
        directory = out / f"kafka-{name}"
        shutil.rmtree(directory, ignore_errors=True)
        # One for each run: with the topics of many it is slow, and fenced when it gets no CPU.
        with Broker(directory, java=JavaOptions(heap_mb=512)) as broker:
            kafka = broker.settings.model_copy(update={"topic_prefix": f"{name}."})
            commands = Commands(out / name, kafka, stop)
            verdicts[name] = _verdict(name, RUNS[name], commands, data, teacher)
        shutil.rmtree(directory, ignore_errors=True)
        print(_line(verdicts[name]), flush=True)
        _write(list(verdicts.values()), out)


def _verdict(name: str, run: WholeRun, commands: Commands, data: Path, teacher: Path) -> Verdict:
    began_s, killed_at = time.monotonic(), 0
    kafka = commands.kafka
    faults: list[str] = []
    values = run.values(commands.out, data, teacher)
    trainer = parse(values).trainer
    commands.user_modules.mkdir(parents=True, exist_ok=True)
    for module in run.deleted:
        shutil.copy(METHODS / f"{module}.py", commands.user_modules / f"{MINE}{module}.py")
    try:
        killed_at = commands.train(write_run(values), STEPS).killed_at
        shutil.rmtree(commands.user_modules)
        faults += log_faults(kafka)
        faults += exploration_faults(kafka)
        metrics = {*promised(trainer), *run.metrics}
        faults += file_faults(commands.out, STEPS, metrics, run)
        faults += audit_faults(kafka, commands.out)
        if run.ranks == 1:  # replay computes with one rank, which rounds otherwise than two
            faults += replay_faults(commands("replay", "train"), STEPS)
    except RunFailed as failed:
        faults.append(str(failed))
    return Verdict(name, round(time.monotonic() - began_s, 1), killed_at, tuple(faults))


def _line(verdict: Verdict) -> str:
    text = f"{verdict.took_s:6.1f} s, killed at step {verdict.killed_at}: "
    if not verdict.faults:
        return f"{text}ok"
    return "\n    ".join([f"{text}FAILED", *verdict.faults])


def _known(out: Path) -> dict[str, Verdict]:
    """Return the runs that were ok in this directory."""
    file = out / _SUMMARY
    rows = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    verdicts = [Verdict(**{**row, "faults": tuple(row["faults"])}) for row in rows]
    return {verdict.name: verdict for verdict in verdicts if not verdict.faults}


def _write(results: Sequence[Verdict], out: Path) -> None:
    rows: Sequence[Mapping[str, object]] = [asdict(result) for result in results]
    (out / _SUMMARY).write_text(json.dumps(rows, indent=1), encoding="utf-8")
    lines = ["| run | seconds | killed at step | verdict |", "|---|---|---|---|"]
    for result in results:
        verdict = "; ".join(result.faults).replace("\n", " ") or "ok"
        lines.append(f"| `{result.name}` | {result.took_s:.0f} | {result.killed_at} | {verdict} |")
    (out / "summary.md").write_text("\n".join([*lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
