"""Configuration of a short run, with an agent of the test and a model that knows nothing."""

import json
from pathlib import Path
from typing import Any

import yaml

from seamlessflow.demo.model import make_model

TASKS = 50


def short_run(directory: Path, agent: str, steps: int, modelled: bool = False) -> Path:
    """Write the configuration of a run in `directory` / "out"; return its file.

    `agent` is the text of a module with a function `run`. The directory must be the working
    directory of the run, so that the module is found. Where nothing is learned, `modelled` devices
    save the time in which torch starts.
    """
    make_model(directory / "model", seed=1)
    (directory / "short_agent.py").write_text(agent)
    tasks = "".join(json.dumps({"id": str(number)}) + "\n" for number in range(TASKS))
    (directory / "tasks.jsonl").write_text(tasks)
    values: dict[str, Any] = {
        "out": str(directory / "out"),
        "workers": [
            {"id": "w0", "tags": ["rollout"]},
            {"id": "w1", "tags": ["rollout", "train"]},
        ],
        "policy": {"model": str(directory / "model"), "max_context": 512},
        "run": {"id": "short", "steps": steps, "groups_per_step": 2, "group_size": 4},
        "pacing": {
            "tasks": str(directory / "tasks.jsonl"),
            "task_timeout_s": 60,
            "group_timeout_s": 200,
        },
        "agents": {"callable": "short_agent:run"},
        "trainer": {"threads": 1, "checkpoint_every": 2},
        "rollout": {"torch": {"threads": 1, "kv_bytes": 64 * 1024**2}},
    }
    if modelled:
        values |= {"trainer": {"backend": "clock"}, "rollout": {"engine": "clock"}}
    file = directory / "run.yaml"
    file.write_text(yaml.safe_dump(values))
    return file
