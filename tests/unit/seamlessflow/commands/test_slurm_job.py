"""The job of `examples/slurm`, with a stand-in for Slurm: it starts the nodes of its file."""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from seamlessflow.config_file import as_written, load
from seamlessflow.device_defaults import by_named_devices
from seamlessflow.nodes import name_faults, spread_faults
from seamlessflow.processes.ranks import gang_faults
from tests.builders.slurm import stand_ins
from tests.paths import ROOT

EXAMPLE = ROOT / "examples" / "slurm"
JOB, RUN = EXAMPLE / "job.sbatch", EXAMPLE / "run.yaml"
HOSTS = ("rack-7", "rack-9")
SECRET = "SEAMLESSFLOW_GATEWAY__SECRET"
RECORDER = """#!/bin/bash
echo "$SEAMLESSFLOW_TRAINER__HOST $*" > "$SEEN/$SLURMD_NODENAME"
[[ $SLURMD_NODENAME != "${FAILING:-}" ]]
"""
"""A `seamlessflow` that writes its variable and its arguments into a file for each host."""


@pytest.fixture
def environment(tmp_path: Path) -> Mapping[str, str]:
    made = stand_ins(tmp_path / "programs", HOSTS, RECORDER)
    return {**made, "SEEN": str(tmp_path), SECRET: "a secret of sixteen letters"}


def submitted(
    environment: Mapping[str, str], *arguments: object
) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(JOB), *map(str, arguments)]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_job_is_bash() -> None:
    subprocess.run(["bash", "-n", JOB], check=True)


def test_each_host_starts_a_node_by_its_number(
    environment: Mapping[str, str], tmp_path: Path
) -> None:
    done = submitted(environment, RUN)
    assert done.returncode == 0, done.stderr
    assert [(tmp_path / host).read_text() for host in HOSTS] == [
        f"{host} node --config {RUN} --name node-{number}\n" for number, host in enumerate(HOSTS)
    ]


def test_the_job_fails_with_a_node(environment: Mapping[str, str]) -> None:
    assert submitted({**environment, "FAILING": HOSTS[1]}, RUN).returncode == 1


def test_a_job_without_a_file_or_a_secret_is_refused(
    environment: Mapping[str, str], tmp_path: Path
) -> None:
    assert "usage: sbatch job.sbatch RUN.yaml" in submitted(environment).stderr
    without = {name: text for name, text in environment.items() if name != SECRET}
    assert f"{SECRET}: set it before sbatch" in submitted(without, RUN).stderr
    assert not any((tmp_path / host).exists() for host in HOSTS)


def test_the_job_asks_for_one_host_a_node() -> None:
    [hosts] = re.findall(r"^#SBATCH --nodes=(\d+)$", JOB.read_text(), re.M)
    assert list(load(RUN, fill=by_named_devices).nodes) == [f"node-{n}" for n in range(int(hosts))]


@pytest.mark.parametrize(("name", "host"), [("node-0", HOSTS[0]), ("node-1", HOSTS[1])])
def test_the_nodes_of_the_file_can_meet(
    name: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SECRET, "a secret of sixteen letters")
    monkeypatch.setenv("SEAMLESSFLOW_TRAINER__HOST", host)
    config = load(RUN, fill=by_named_devices)
    faults = [*name_faults(config, name), *spread_faults(config), *gang_faults(config)]
    assert [fault.line(as_written) for fault in faults] == []
    assert config.trainer.host == host
