"""A training whose model is a name at a hub, then again without the network."""

import json
from pathlib import Path

import pytest
import yaml

from seamlessflow.infra.errors import ExitStatus
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.weights.versions import version_directory, versions
from seamlessflow.inspection.model_directory import incomplete
from seamlessflow.recorded.show.log import initial_models
from tests.builders.model_hub import COMMIT, LATER, model_hub
from tests.e2e.runs.short_run import short_run, started

pytestmark = pytest.mark.slow

LIMIT_S = 500
AGENT = """
from openai import AsyncOpenAI

async def run(task, session):
    client = AsyncOpenAI(
        base_url=session.base_url, api_key=session.api_key, http_client=session.http_client
    )
    asked = [{"role": "user", "content": "key 7"}]
    await client.chat.completions.create(model=session.model, messages=asked, max_tokens=8)
    return float(session.session_id.split(".")[1]) % 2
"""


def trained(config: Path, steps: int) -> tuple[str, int]:
    """Return what a training up to a step says, and its status."""
    values = yaml.safe_load(config.read_text())
    values["run"]["steps"] = steps
    config.write_text(yaml.safe_dump(values))
    with started(config, "train") as process:
        said, _ = process.communicate(timeout=LIMIT_S)
    return said, process.returncode


def test_a_model_of_a_hub_is_trained_and_the_run_goes_on_without_the_network(
    kafka: KafkaSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = short_run(tmp_path, AGENT, 1, kafka=kafka)
    (tmp_path / "model").rename(tmp_path / "elsewhere")
    values = yaml.safe_load(config.read_text())
    values["policy"]["model"] = "org/tiny"
    values["trainer"]["checkpoint_every"] = 1
    config.write_text(yaml.safe_dump(values))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    with model_hub() as hub:
        hub.serve("org/tiny", tmp_path / "elsewhere")
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        said, status = trained(config, steps=1)
    assert status == 0, said
    assert f"org/tiny@{COMMIT} of {hub.url}" in said
    assert initial_models(kafka, Skipped()) == {"policy": f"org/tiny@{COMMIT}"}

    said, status = trained(config, steps=2)
    assert status == 0, said
    out = tmp_path / "out"
    assert json.loads((out / "summary.json").read_text())["steps"] == 2
    newest = version_directory(out / "weights", max(versions(out / "weights")))
    assert incomplete(newest) == "", "links of the cache are no files of a version"

    monkeypatch.setenv("HF_HOME", str(tmp_path / "another cache"))
    with model_hub() as hub:
        hub.serve("org/tiny", tmp_path / "elsewhere", LATER)
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        said, status = trained(config, steps=3)
    assert status == ExitStatus.LASTING
    assert f"this run began with org/tiny@{COMMIT}: write org/tiny@{COMMIT} to go on" in said
