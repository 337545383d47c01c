"""Runs with a policy that is served and not trained, beside the policy that learns.

Both answer in the same sessions. A judge's model is a directory: a run that goes on needs the same
files. A rival shows past versions of the policy, as the league chooses them.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from seamlessflow.demo.model import make_model
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.weights.versions import versions
from seamlessflow.recorded.audit.audit import audit
from seamlessflow.scheduler.state.ledger import opponent_of
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import CONTROL, FLEET, SESSIONS, TRAJECTORIES
from tests.builders.auditing.trained_files import read_trained
from tests.e2e.runs.short_run import records_of, short_run, started

pytestmark = pytest.mark.slow

LIMIT_S = 240
STEPS = 2
JUDGE = "judge"
SCORE = r"(?s)^\D*(\d)"
DIGIT = "7"
"""Text of all answers of a modelled engine."""
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
            messages=[{"role": "user", "content": f"{module} {task['id']}"}],
            extra_headers={"x-seamlessflow-module": module},
        )
    return float(session.session_id.split(".")[1]) % 2
"""


def configured(
    directory: Path, kafka: KafkaSettings, steps: int, frozen: Any, **worker: Any
) -> Path:
    """Write a run with a frozen policy, which a worker of this form serves; return its file."""
    file = short_run(directory, AGENT, steps, modelled=True, kafka=kafka)
    values: dict[str, Any] = yaml.safe_load(file.read_text())
    values |= {
        "workers": [{"id": "w0", "tags": ["rollout", "train"]}, {"id": "w1", **worker}],
        "policies": {JUDGE: {"frozen": frozen}},
    }
    values["agents"]["modules"] = {"referee": JUDGE}
    if isinstance(frozen, dict):
        values["pacing"]["terms"] = {"name": "league"}
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
    make_model(tmp_path / JUDGE, seed=2)
    config = configured(tmp_path, kafka, STEPS, str(tmp_path / JUDGE), **worker)
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
    trained = trained_turns(out)
    assert {asked[turn] for turn in trained} == {"policy"}
    check_masks(kafka)

    report = audit(kafka, out / "trained")
    assert report.clean, report.violations
    assert not report.result("groups").open, "all credits are returned"
    figures = json.loads((out / "summary.json").read_text())
    assert figures["steps"] == STEPS
    assert figures["tokens_trained"] == figures["checks"]["tokens_checked"] > 0
    check_resume(tmp_path, config)


def trained_turns(out: Path) -> set[str]:
    """Return the turns of which tokens were trained."""
    return {item.turn for path in (out / "trained").glob("*.gz") for item in read_trained(path)[1]}


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


def test_groups_play_against_the_version_that_the_league_chose(
    kafka: KafkaSettings, tmp_path: Path
) -> None:
    past = {"of": "policy", "every": 2}
    config = configured(tmp_path, kafka, 3 * STEPS, past, tags=["rollout"], policy=JUDGE)
    with started(config, "train") as run:
        said, _ = run.communicate(timeout=LIMIT_S)
    assert run.returncode == 0, said
    out = tmp_path / "out"
    control = records_of(kafka, CONTROL)
    opponents = {
        record.group_id: opponent_of(record.arms)
        for record in control
        if isinstance(record, r.GroupAdmitted)
    }
    assert len(set(opponents.values())) > 1
    assert -1 not in opponents.values()
    check_opponents(kafka, control, opponents)
    check_masks(kafka)
    assert {0, 2, 4} <= versions(out / "weights").keys(), "past versions stay"

    report = audit(kafka, out / "trained")
    assert report.clean, report.violations
    assert not report.result("groups").open, "all credits are returned"


def check_opponents(
    kafka: KafkaSettings, control: list[Record], opponents: Mapping[str, int]
) -> None:
    """Each token of the rival is of the version that its group was admitted to play against."""
    published = [record for record in control if isinstance(record, r.WeightsPublished)]
    by_manifest = {
        record.manifest_sha256: record.version for record in published if record.policy != JUDGE
    }
    shown = {
        record.version: by_manifest[record.manifest_sha256]
        for record in published
        if record.policy == JUDGE
    }
    played = [
        (opponents[record.group_id], shown[version_of(record, node)])
        for record in records_of(kafka, TRAJECTORIES)
        if isinstance(record, r.Trajectory)
        for node in record.nodes
        if node.origin == "policy" and node.policy == JUDGE
    ]
    assert played
    assert all(opponent == version for opponent, version in played)


def version_of(record: r.Trajectory, node: r.TrajectoryNode) -> int:
    """Return the version that sampled a node."""
    span = [span for span in record.spans if span.start <= node.start][-1]
    assert span.version_min == span.version_max
    return span.version_min


def judged_run(directory: Path, kafka: KafkaSettings) -> Path:
    """Write a run whose model judge is a frozen policy that answers no module; return its file."""
    make_model(directory / JUDGE, seed=2)
    file = configured(
        directory, kafka, STEPS, str(directory / JUDGE), tags=["rollout"], policy=JUDGE
    )
    values: dict[str, Any] = yaml.safe_load(file.read_text())
    model = {"policy": JUDGE, "prompt": "Rate $answer", "max_tokens": 4, "score": SCORE}
    values["agents"]["modules"] = {}
    values["rewards"] = {"judges": {"right": {"model": model}}}
    values["rollout"] |= {"clock": {"text": DIGIT}}
    values["trainer"] |= {"rewards": {"reward": 1.0, "right": 0.5}}
    file.write_text(yaml.safe_dump(values))
    return file


def test_a_frozen_policy_judges_in_sessions_of_its_own(
    kafka: KafkaSettings, tmp_path: Path
) -> None:
    with started(judged_run(tmp_path, kafka), "train") as run:
        said, _ = run.communicate(timeout=LIMIT_S)
    assert run.returncode == 0, said
    out = tmp_path / "out"

    made = [
        record for record in records_of(kafka, TRAJECTORIES) if isinstance(record, r.Trajectory)
    ]
    episodes = {each.session_id: each for each in made if each.purpose == "train"}
    asked = [each for each in made if each.purpose == "judge" and each.cause == "policy"]
    assert {each.policy for each in asked} == {JUDGE}
    check_judgements(episodes, asked)
    check_greedy(kafka, out, asked)

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


def check_greedy(kafka: KafkaSettings, out: Path, asked: Sequence[r.Trajectory]) -> None:
    """The tokens of the judge are on the log, greedy and masked; none of its turns is trained."""
    nodes = [node for each in asked for node in each.nodes if node.origin == "policy"]
    assert nodes and all(node.length for node in nodes)
    assert {node.masked_reason for node in nodes} == {"frozen"}
    assert not any(any(each.loss_mask) for each in asked)
    turns = {node.turn_id for node in nodes}
    records = records_of(kafka, SESSIONS)
    begun = [each for each in records if isinstance(each, r.TurnStarted) and each.turn_id in turns]
    assert {each.sampling_effective.temperature for each in begun} == {0}
    files = (out / "trained").glob("*.gz")
    trained = {item.turn for path in files for item in read_trained(path)[1]}
    assert trained and not trained & turns
    ready = {each.group_id for each in records_of(kafka, CONTROL) if isinstance(each, r.GroupReady)}
    assert not ready & {each.session_id for each in asked}
