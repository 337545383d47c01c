"""The job of `examples/slurm` as a whole run: two nodes, with a stand-in for Slurm."""

import subprocess
from pathlib import Path

import pytest

from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import RunFinished
from seamlessflow.schemas.topics import CONTROL
from tests.builders.slurm import stand_ins
from tests.e2e.runs.short_run import records_of
from tests.e2e.runs.two_nodes import own_address, reached_by_hosts, two_nodes
from tests.paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.soak]

LIMIT_S = 240
STEPS = 2
JOB = ROOT / "examples" / "slurm" / "job.sbatch"
NAMES = ("node-0", "node-1")


def test_a_job_makes_all_steps_and_ends_with_status_0(
    broker: KafkaSettings, tmp_path: Path
) -> None:
    host, settings = own_address(), broker.model_copy(update={"topic_prefix": "slurm."})
    variables = {
        **stand_ins(tmp_path / "programs", [host] * len(NAMES)),
        "SEAMLESSFLOW_GATEWAY__SECRET": "a secret of this test alone",
        "PYTHONPATH": str(tmp_path),
    }
    with reached_by_hosts(settings, host) as kafka:
        config = two_nodes(tmp_path, kafka, "unset.example", "clock", NAMES, STEPS)
        done = subprocess.run(
            ["bash", JOB, config],
            cwd=tmp_path,
            env=variables,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        records = records_of(kafka, CONTROL)
    assert [record.steps for record in records if isinstance(record, RunFinished)] == [STEPS]
