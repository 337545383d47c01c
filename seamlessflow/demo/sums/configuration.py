"""Run configuration of the demo with a real model. Imports neither torch nor renderers."""

from pathlib import Path

from seamlessflow.checks.check import before_real_demo
from seamlessflow.config import RunConfig
from seamlessflow.config_file import parse
from seamlessflow.demo.configuration import GROUPS, POLICY, START_TIMEOUT_S

MAX_CONTEXT = 256
"""Most tokens of prompt and completion together; a session of SmolLM2 has about 42."""
AGENTS = {"callable": "seamlessflow.demo.sums.agent:run", "name": "sums", "concurrency": 128}
OPTIMIZER = {"lr": 2e-5, "warmup_steps": 5}
CHECKPOINTS = {"checkpoint_every": 20, "checkpoints_kept": 1}
"""Few, since one of SmolLM2 has 1.6 GB; they serve a trainer that is started again."""
TIMEOUTS = {"task_timeout_s": 600, "group_timeout_s": 1800}


def sums_config(out: Path, model: str, steps: int, seed: int) -> RunConfig:
    """Return a run with one worker, which rolls out and trains in turns.

    `model`: as `policy.model`. Environment variables override the run's settings, as they do a
    file's. Raises `ConfigRejected`.
    """
    return parse(
        {
            "out": out,
            "workers": [{"id": "w0", "tags": ["rollout", "train"]}],
            "policy": {"model": model, "max_context": MAX_CONTEXT},
            "run": {"id": "demo", "policy": POLICY, "steps": steps, "lag": 1, **GROUPS},
            "pacing": {"tasks": out / "tasks" / "train.jsonl", "seed": seed, **TIMEOUTS},
            "agents": AGENTS,
            "trainer": {"optimizer": OPTIMIZER, "seed": seed, **CHECKPOINTS},
            "rollout": {"capacity": 64},
            "start_timeout_s": START_TIMEOUT_S,
        },
        check=before_real_demo,
    )
