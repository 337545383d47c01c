"""The command line of a worker that joins a run in, its process out."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from seamlessflow.__main__ import app
from seamlessflow.commands.workers import joining
from seamlessflow.config import RunConfig
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.processes.child import ChildSpec
from seamlessflow.processes.cluster import WITHOUT_FOLLOWING, NoRunningRun, kafka_of_running

CONFIG = RunConfig.model_validate({"rollout": {"engine": "clock"}, "run": {"lag": 2}})
KAFKA = KafkaSettings(bootstrap_servers="kafka:9092", topic_prefix="run.")


def joined(**asked: Any) -> ChildSpec:
    values = {"id": "w9", "tags": ("rollout", "hw:A"), **asked}
    return joining(CONFIG, values, KAFKA, {"PATH": "/bin", "SEAMLESSFLOW_RUN__LAG": "7"})


def test_a_worker_that_joins_has_the_settings_of_the_run_and_tags_of_its_own() -> None:
    spec = joined(device="cuda:1")

    rollout = json.loads(spec.environment["SEAMLESSFLOW_ROLLOUT"])
    kafka = json.loads(spec.environment["SEAMLESSFLOW_KAFKA"])
    assert spec.module == "seamlessflow.producers.rollout"
    assert (rollout["worker"], rollout["tags"]) == ("w9", ["rollout", "hw:A"])
    assert (rollout["engine"], rollout["torch"]["device"]) == ("clock", "cuda:1")
    assert json.loads(spec.environment["SEAMLESSFLOW_RUN"])["lag"] == 2
    assert (kafka["bootstrap_servers"], kafka["topic_prefix"]) == ("kafka:9092", "run.")
    assert spec.environment["PATH"] == "/bin"
    assert "SEAMLESSFLOW_RUN__LAG" not in spec.environment


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"id": "w0"}, "has a worker w0 of its own"),
        ({"tags": ("rollout", "train")}, "a worker that joins rolls out"),
        ({"tags": ("rollout", "decod")}, "'decode' meant"),
        ({"tags": ("hw:A",)}, "names no role"),
        ({"devices": (1, 1)}, "names a device twice"),
        ({"id": "w 9"}, "id: "),
    ],
)
def test_what_cannot_join_is_refused_by_name(asked: dict[str, Any], reason: str) -> None:
    with pytest.raises(typer.BadParameter, match=reason):
        joined(**asked)


def test_wrong_tags_are_refused_before_a_run_is_looked_for(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(f"out: {tmp_path}/out\n")

    def said(*options: str) -> str:
        done = CliRunner().invoke(app, ["worker", "w9", "--config", str(file), *options])
        return f"{done.output} {done.exception}"

    assert "is 'decode' meant" in " ".join(
        said("--tags", "rollout,decod").replace("│", " ").split()
    )
    assert "start it first" in said()


def test_without_a_run_under_way_no_option_of_other_commands_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoRunningRun) as refused:
        kafka_of_running(tmp_path)
    assert str(refused.value) == f"no run is under way in {tmp_path}: start it first"
    with pytest.raises(NoRunningRun, match="without --follow"):
        kafka_of_running(tmp_path, WITHOUT_FOLLOWING)
