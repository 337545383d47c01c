"""Checks of a run on several nodes, before the first process of one of them starts."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from seamlessflow.checks.check import before_node, before_recorded_training
from tests.builders.run_files import faults, run_values


def many(folder: Path, **values: Any) -> Mapping[str, Any]:
    """Return a run on two nodes, the second without a device of the first."""
    return {
        **run_values(folder),
        "workers": [
            {"id": "a", "tags": ["rollout", "train"], "node": "one", "device": "cpu"},
            {"id": "b", "node": "two", "device": "cdua"},
        ],
        "kafka": {"bootstrap_servers": "kafka.example:9092"},
        "gateway": {"secret": "a secret of sixteen letters"},
        **values,
    }


def faults_on(name: str, values: Mapping[str, Any]) -> Sequence[str]:
    return faults(values, partial(before_node, name=name))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def test_a_node_checks_the_devices_of_its_own_workers(folder: Path) -> None:
    assert faults_on("one", many(folder)) == ()
    [line] = faults_on("two", many(folder))
    assert line.startswith("workers[1].device")
    assert "'cdua' is no device" in line


def test_commands_for_one_machine_refuse_a_run_of_several(folder: Path) -> None:
    needed = "workers: are of the nodes one, two: start `seamlessflow node` on each"
    assert needed in faults(many(folder))
    assert needed in faults(many(folder), before_recorded_training)


def test_only_the_first_node_needs_the_agent(folder: Path) -> None:
    values = many(folder, agents={"callable": "missing_agent:run"})
    assert any(line.startswith("agents.callable") for line in faults_on("one", values))
    assert not any(line.startswith("agents.callable") for line in faults_on("two", values))


def test_of_workers_with_a_wrong_setting_it_is_not_also_said_that_they_have_no_node(
    folder: Path,
) -> None:
    [line] = faults_on(
        "one", many(folder, workers=[{"id": "a", "node": "one", "tags": ["rollot"]}])
    )
    assert line.startswith("workers[0].tags: 'rollot' is not a known tag")
    [line] = faults_on("one", many(folder, workers=[{"id": "a"}]))
    assert line.startswith("workers: no worker is of a node")
