"""A rollout process with the acting engine: `python -m tests.agents.engine.worker`."""

import os
from pathlib import Path

from seamlessflow.infra.process import run_sync
from seamlessflow.infra.settings import load
from seamlessflow.infra.telemetry.metrics import Metrics
from seamlessflow.infra.telemetry.tracing import telemetry
from seamlessflow.producers.rollout.bootstrap import build
from seamlessflow.producers.rollout.settings import RolloutSettings
from tests.agents.engine.engine import ActingEngines
from tests.agents.engine.scripts import SCRIPTS, line

RECORD = "SAMPLED_TURNS"
"""The variable that names the file of `record.py`."""


def main() -> None:
    """Serve until SIGTERM."""
    settings = load(RolloutSettings)
    traces = telemetry(settings.telemetry, "rollout", settings.rollout.worker)
    engines = ActingEngines(lambda prompt: line(prompt, SCRIPTS), Path(os.environ[RECORD]))
    run_sync(build(settings, traces, Metrics(), engines).run)


if __name__ == "__main__":
    main()
