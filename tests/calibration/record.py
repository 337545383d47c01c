"""Records runs for `test_calibration`: `python -m tests.calibration.record DIR`.

Each run trains the demo's model by another strategy, with the torch engine, for a minute or two,
one after the other: they can be compared only if the machine has nothing else to do. Writes
`runs.json.gz` beside this module.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from seamlessflow.demo.model import make_model
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.lab.calibration.recorded_run import Recorded, read_run
from seamlessflow.processes.cluster import kafka_to_audit
from tests.calibration.kept_run import keep
from tests.calibration.strategies import STRATEGIES, Arrangement
from tests.paths import ROOT

STEPS, TASKS = 30, 500


def main() -> None:
    """Run all, and keep them."""
    directory = Path(sys.argv[1]).absolute()
    directory.mkdir(parents=True, exist_ok=True)
    make_model(directory / "model", seed=1)
    (directory / "tasks.jsonl").write_text("".join(f'{{"id": "{n}"}}\n' for n in range(TASKS)))
    for name, arrangement in STRATEGIES.items():
        file = directory / f"{name}.yaml"
        file.write_text(yaml.safe_dump(_config(directory, name, arrangement)))
        subprocess.run(
            [sys.executable, "-m", "seamlessflow", "train", "--config", str(file)],
            cwd=ROOT,
            check=True,
        )
    keep({name: _read(directory / name) for name in STRATEGIES})


def _read(out: Path) -> Recorded:
    with kafka_to_audit(out) as kafka:
        return read_run(kafka, Skipped())


def _config(directory: Path, name: str, arrangement: Arrangement) -> dict[str, Any]:
    return {
        "out": str(directory / name),
        "workers": [
            {"id": f"w{number}", "tags": [*tags]} for number, tags in enumerate(arrangement.tags)
        ],
        "policy": {"model": str(directory / "model"), "max_context": 512},
        "run": {
            **{"id": "calibration", "steps": STEPS, "lag": arrangement.lag},
            **{"groups_per_step": 4, "group_size": 4},
        },
        "pacing": {
            "tasks": str(directory / "tasks.jsonl"),
            "task_timeout_s": 60,
            "group_timeout_s": 180,
        },
        "agents": {"callable": "tests.calibration.agent:run"},
        "trainer": {"threads": 1},
        "rollout": {"capacity": 16, "torch": {"threads": 1, "kv_bytes": 64 * 1024**2}},
        "scheduler": {"policy": arrangement.strategy},
    }


if __name__ == "__main__":
    main()
