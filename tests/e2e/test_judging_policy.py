"""A run whose model judge is a policy of the run: served, and none of its tokens is trained."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from seamlessflow.demo.model import make_model
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.audit.audit import audit
from seamlessflow.schemas import records as r
from seamlessflow.schemas.topics import CONTROL, SESSIONS, TRAJECTORIES
from tests.builders.auditing.trained_files import read_trained
from tests.e2e.runs.short_run import records_of, short_run, started

pytestmark = pytest.mark.slow

LIMIT_S = 240
STEPS = 2
REFEREE = "referee"
AGENT = """
from openai import AsyncOpenAI

async def run(task, session):
    client = AsyncOpenAI(
        base_url=session.base_url, api_key=session.api_key, http_client=session.http_client
    )
    await client.chat.completions.create(
        model=session.model, max_tokens=8, messages=[{"role": "user", "content": task["id"]}]
    )
    return float(session.session_id.split(".")[1]) % 2
"""
SCORE = r"(?s)^\D*(\d)"
DIGIT = "7"
"""Text of all answers of the modelled engine."""


def configured(directory: Path, kafka: KafkaSettings) -> Path:
    """Write a run whose judge is a frozen policy; return its file."""
    make_model(directory / REFEREE, seed=2)
    file = short_run(directory, AGENT, STEPS, modelled=True, kafka=kafka)
    values: dict[str, Any] = yaml.safe_load(file.read_text())
    model = {"policy": REFEREE, "prompt": "Rate $answer", "max_tokens": 4, "score": SCORE}
    values |= {
        "workers": [
            {"id": "w0", "tags": ["rollout", "train"]},
            {"id": "w1", "tags": ["rollout"], "policy": REFEREE},
        ],
        "policies": {REFEREE: {"frozen": str(directory / REFEREE)}},
        "rewards": {"judges": {"right": {"model": model}}},
    }
    values["rollout"] |= {"clock": {"text": DIGIT}}
    values["trainer"] |= {"rewards": {"reward": 1.0, "right": 0.5}}
    file.write_text(yaml.safe_dump(values))
    return file


def test_a_frozen_policy_judges_in_sessions_of_its_own(
    kafka: KafkaSettings, tmp_path: Path
) -> None:
    with started(configured(tmp_path, kafka), "train") as run:
        said, _ = run.communicate(timeout=LIMIT_S)
    assert run.returncode == 0, said
    out = tmp_path / "out"

    made = [
        record for record in records_of(kafka, TRAJECTORIES) if isinstance(record, r.Trajectory)
    ]
    episodes = {each.session_id: each for each in made if each.purpose == "train"}
    asked = [each for each in made if each.purpose == "judge" and each.cause == "policy"]
    assert {each.policy for each in asked} == {REFEREE}
    check_judgements(episodes, asked)
    check_tokens(kafka, out, asked)

    report = audit(kafka, out / "trained")
    assert report.clean, report.violations
    assert not report.result("groups").open, "all credits are returned"
    figures = json.loads((out / "summary.json").read_text())
    assert figures["steps"] == STEPS
    assert figures["trajectories"] == len(episodes), "sessions of judges are none of the run's"


def check_judgements(episodes: Mapping[str, r.Trajectory], asked: Sequence[r.Trajectory]) -> None:
    """Each finished session has the judge's reward once, from a session on the log."""
    finished = [each for each in episodes.values() if each.status == "complete"]
    for each in finished:
        rewards = Counter(reward.name for reward in each.rewards)
        assert rewards == {"reward": 1, "right": 1}
        values = {reward.name: reward.value for reward in each.rewards}
        assert values["right"] == float(DIGIT)
    for each in asked:
        assert each.metadata["judge"] == "right"
        assert each.metadata["judged"] in episodes
        assert each.rewards == ()


def check_tokens(kafka: KafkaSettings, out: Path, asked: Sequence[r.Trajectory]) -> None:
    """The tokens of the judge are on the log, greedy and masked; none of its turns is trained."""
    nodes = [node for each in asked for node in each.nodes if node.origin == "policy"]
    assert nodes and all(node.length for node in nodes)
    assert {node.masked_reason for node in nodes} == {"frozen"}
    assert not any(any(each.loss_mask) for each in asked)
    turns = {node.turn_id for node in nodes}
    records = records_of(kafka, SESSIONS)
    begun = [each for each in records if isinstance(each, r.TurnStarted) and each.turn_id in turns]
    assert {each.sampling.temperature for each in begun} == {0}
    files = (out / "trained").glob("*.gz")
    trained = {item.turn for path in files for item in read_trained(path)[1]}
    assert trained and not trained & turns
    ready = {each.group_id for each in records_of(kafka, CONTROL) if isinstance(each, r.GroupReady)}
    assert not ready & {each.session_id for each in asked}
