"""A run of two policies that are adapters of one base model, sampled and trained for real."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.weights.adapter import TENSORS
from seamlessflow.infra.weights.manifest import read_manifest
from seamlessflow.infra.weights.tensors import tensor_hashes, tensors_hash
from seamlessflow.infra.weights.versions import versions
from seamlessflow.inspection.model_directory import incomplete
from seamlessflow.schemas import records as r
from seamlessflow.schemas.topics import CONTROL
from tests.e2e.runs.short_run import records_of, short_run, started

pytestmark = pytest.mark.slow

LIMIT_S = 500
STEPS = 2
AGENT = """
from openai import AsyncOpenAI

async def run(task, session):
    client = AsyncOpenAI(
        base_url=session.base_url, api_key=session.api_key, http_client=session.http_client
    )
    for module in ("one", "two"):
        await client.chat.completions.create(
            model=session.model,
            max_tokens=8,
            messages=[{"role": "user", "content": f"{module} {task['id']}"}],
            extra_headers={"x-seamlessflow-module": module},
        )
    return float(session.session_id.split(".")[1]) % 2
"""


@pytest.fixture
def config(kafka: KafkaSettings, tmp_path: Path) -> Path:
    file = short_run(tmp_path, AGENT, STEPS, kafka=kafka)
    values: dict[str, Any] = yaml.safe_load(file.read_text())
    values |= {
        "workers": [
            {"id": "w0", "tags": ["rollout", "train"]},
            {"id": "w1", "tags": ["rollout", "train"], "policy": "second"},
        ],
        "policies": {"second": {"trainer": {"adapter": {"rank": 2, "targets": ["q_proj"]}}}},
    }
    values["trainer"] |= {"adapter": {"rank": 4}, "optimizer": {"lr": 1e-2}}
    values["agents"]["modules"] = {"two": "second"}
    values["pacing"] |= {"task_timeout_s": 150, "group_timeout_s": 300}
    file.write_text(yaml.safe_dump(values))
    return file


def test_adapters_of_one_base_are_several_policies(
    kafka: KafkaSettings, tmp_path: Path, config: Path
) -> None:
    base = tensors_hash(tmp_path / "model")
    with started(config, "train") as run:
        said, _ = run.communicate(timeout=LIMIT_S)
    assert run.returncode == 0, said
    out = tmp_path / "out"
    figures = json.loads((out / "summary.json").read_text())
    assert {name: summary["steps"] for name, summary in figures["policies"].items()} == {
        "policy": STEPS,
        "second": STEPS,
    }
    assert figures["checks"]["mismatches"] == figures["checks"]["trained_twice"] == 0

    control = records_of(kafka, CONTROL)
    served = {
        record.policy
        for record in control
        if isinstance(record, r.RoleAcquired) and record.role == "rollout"
    }
    assert served == {"policy", "second"}
    published = [record for record in control if isinstance(record, r.WeightsPublished)]
    assert {record.kind for record in published} == {"adapter"}

    assert tensors_hash(tmp_path / "model") == base
    model_bytes = (tmp_path / "model" / "model.safetensors").stat().st_size
    for folder, layers in ((out, "q_proj k_proj"), (out / "policies" / "second", "q_proj")):
        for directory in versions(folder / "weights").values():
            assert read_manifest(directory).base_hash == base
            assert [path.name for path in directory.glob("*.safetensors")] == [TENSORS]
            assert (directory / TENSORS).stat().st_size < model_bytes / 2
        final = folder / "weights" / "final"
        assert incomplete(final) == ""
        before, after = tensor_hashes(tmp_path / "model"), tensor_hashes(final)
        changed = {name for name in before if before[name] != after[name]}
        assert {name.split(".")[-2] for name in changed} >= set(layers.split())
