"""A run with a policy that is served and not trained: a judge beside the policy that learns.

Both answer in the same sessions. The judge's model is a directory. A run that goes on needs the
same files.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from seamlessflow.demo.model import make_model
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.audit.audit import audit
from seamlessflow.schemas import records as r
from seamlessflow.schemas.topics import CONTROL, FLEET, SESSIONS, TRAJECTORIES
from tests.builders.auditing.trained_files import read_trained
from tests.e2e.runs.short_run import records_of, short_run, started

pytestmark = pytest.mark.slow

LIMIT_S = 240
STEPS = 2
JUDGE = "judge"
AGENT = """
from openai import AsyncOpenAI

async def run(task, session):
    client = AsyncOpenAI(
        base_url=session.base_url, api_key=session.api_key, http_client=session.http_client
    )
    for module in ("player", "referee"):
        await client.chat.completions.create(
            model=session.model,
            max_tokens=8,
            messages=[{"role": "user", "content": f"{module} {task.task_id}"}],
            extra_headers={"x-seamlessflow-module": module},
        )
    return float(session.session_id.split(".")[1]) % 2
"""


def configured(directory: Path, kafka: KafkaSettings, worker: dict[str, Any]) -> Path:
    """Write a run with a judge, which a worker of this form serves; return its file."""
    file = short_run(directory, AGENT, STEPS, modelled=True, kafka=kafka)
    make_model(directory / JUDGE, seed=2)
    values: dict[str, Any] = yaml.safe_load(file.read_text())
    values |= {
        "workers": [{"id": "w0", "tags": ["rollout", "train"]}, {"id": "w1", **worker}],
        "policies": {JUDGE: {"frozen": str(directory / JUDGE)}},
        "rollout": {"engine": "scripted", "scripted": {"tokens_per_second": 200}},
    }
    values["agents"]["modules"] = {"referee": JUDGE}
    file.write_text(yaml.safe_dump(values))
    return file


@pytest.mark.parametrize(
    "worker",
    [{"tags": ["rollout"], "policy": JUDGE}, {"tags": ["rollout", "shared"]}],
    ids=["own", "shared"],
)
def test_a_frozen_policy_answers_and_no_token_of_it_is_trained(
    kafka: KafkaSettings, tmp_path: Path, worker: dict[str, Any]
) -> None:
    config = configured(tmp_path, kafka, worker)
    with started(config, "train") as run:
        said, _ = run.communicate(timeout=LIMIT_S)
    assert run.returncode == 0, said
    out = tmp_path / "out"
    assert not list((out / "logs").glob(f"trainer*{JUDGE}*")), "it has no trainer"

    control = records_of(kafka, CONTROL)
    lineages = {record.policy for record in control if isinstance(record, r.LineageStarted)}
    assert lineages == {"policy"}
    published = [
        record
        for record in control
        if isinstance(record, r.WeightsPublished) and record.policy == JUDGE
    ]
    assert [record.version for record in published] == [0]
    weights = [record for record in records_of(kafka, FLEET) if isinstance(record, r.PolicyWeights)]
    assert {record.policy: record.frozen for record in weights} == {"policy": False, JUDGE: True}

    asked = {
        record.turn_id: record.policy
        for record in records_of(kafka, SESSIONS)
        if isinstance(record, r.TurnStarted)
    }
    trained = {
        item.turn for path in (out / "trained").glob("*.gz") for item in read_trained(path)[1]
    }
    assert {asked[turn] for turn in trained} == {"policy"}
    check_masks(kafka)

    report = audit(kafka, out / "trained")
    assert report.clean, report.violations
    assert not report.result("groups").open, "all credits are returned"
    figures = json.loads((out / "summary.json").read_text())
    assert figures["steps"] == STEPS
    assert figures["tokens_trained"] == figures["checks"]["tokens_checked"] > 0
    check_resume(tmp_path, config)


def check_masks(kafka: KafkaSettings) -> None:
    """All tokens of the judge are masked for their reason, and none of the other policy's."""
    records = records_of(kafka, TRAJECTORIES)
    nodes = [
        (record, node)
        for record in records
        if isinstance(record, r.Trajectory) and record.status == "complete"
        for node in record.nodes
        if node.origin == "policy"
    ]
    assert {node.policy for _, node in nodes} == {"policy", JUDGE}
    for record, node in nodes:
        frozen = node.policy == JUDGE
        mask = record.loss_mask[node.start : node.start + node.length]
        assert set(mask) == {not frozen}
        assert node.masked_reason == ("frozen" if frozen else "")


def check_resume(directory: Path, config: Path) -> None:
    """A run with more steps goes on with the same model alone."""
    values = yaml.safe_load(config.read_text())
    values["run"]["steps"] = STEPS + 1
    make_model(directory / "another", seed=3)
    values["policies"][JUDGE]["frozen"] = str(directory / "another")
    config.write_text(yaml.safe_dump(values))
    with started(config, "train") as run:
        said, _ = run.communicate(timeout=LIMIT_S)
    assert run.returncode != 0
    assert f"policies.{JUDGE}.frozen" in said
    assert "model.safetensors is not that of the model that this run began with" in said
    values["policies"][JUDGE]["frozen"] = str(directory / JUDGE)
    config.write_text(yaml.safe_dump(values))
    with started(config, "train") as run:
        said, _ = run.communicate(timeout=LIMIT_S)
    assert run.returncode == 0, said
