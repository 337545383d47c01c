"""A run whose episodes have two roles, each played by a policy with a trainer of its own.

The agents process is killed while it plays the first episodes: both of their sessions are tried
again.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.audit.audit import audit
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import CONTROL, TASKS, TRAJECTORIES
from tests.e2e.runs.short_run import processes_of, records_of, run_log, short_run, started
from tests.waiting import until

pytestmark = pytest.mark.slow

LIMIT_S = 240
STEPS = 3
ROLES = {"seeker": "policy", "hider": "second"}
AGENT = """
import asyncio
from pathlib import Path

from openai import AsyncOpenAI

async def run(task, sessions):
    for turn in range(2):
        for role, session in sessions.items():
            client = AsyncOpenAI(
                base_url=session.base_url, api_key=session.api_key, http_client=session.http_client
            )
            await client.chat.completions.create(
                model=session.model,
                max_tokens=8,
                messages=[{"role": "user", "content": f"{role} {turn}"}],
            )
        if not Path("killed").exists():
            Path("held").touch()
            await asyncio.Event().wait()
    won = float(sessions["seeker"].session_id.split(".")[1]) % 2
    return {"seeker": won, "hider": {"reward": 1 - won}}
"""


@pytest.fixture
def config(kafka: KafkaSettings, tmp_path: Path) -> Path:
    file = short_run(tmp_path, AGENT, STEPS, modelled=True, kafka=kafka)
    values: dict[str, Any] = yaml.safe_load(file.read_text())
    both = ["rollout", "train"]
    values |= {
        "workers": [
            {"id": "w0", "tags": both},
            {"id": "w1", "tags": both, "policy": "second"},
        ],
        "policies": {"second": {"trainer": {"seed": 1}}},
    }
    values["agents"]["roles"] = ROLES
    file.write_text(yaml.safe_dump(values))
    return file


def kill_the_agents(directory: Path) -> None:
    """Kill the agents process once an episode is in the middle; the next one plays to the end."""
    until((directory / "held").exists, "an episode in the middle", LIMIT_S)
    (process,) = processes_of(directory / "out", "seamlessflow.producers.agents")
    (directory / "killed").touch()
    os.kill(process, signal.SIGKILL)


def test_two_policies_play_each_other_and_a_killed_episode_is_tried_again_for_both(
    kafka: KafkaSettings, tmp_path: Path, config: Path
) -> None:
    out = tmp_path / "out"
    with started(config, "train") as run:
        with closing(run_log(kafka, out, LIMIT_S)):
            kill_the_agents(tmp_path)
        said, _ = run.communicate(timeout=LIMIT_S)
    assert run.returncode == 0, said

    figures = json.loads((out / "summary.json").read_text())
    assert {name: of_policy["steps"] for name, of_policy in figures["policies"].items()} == (
        dict.fromkeys(ROLES.values(), STEPS)
    )
    assert figures["tokens_trained"] == figures["checks"]["tokens_checked"] > 0
    report = audit(kafka, out / "trained")
    assert report.clean, report.violations
    assert not report.result("groups").open, "all credits are returned"

    control = records_of(kafka, CONTROL)
    check_groups(control)
    trajectories = [
        record for record in records_of(kafka, TRAJECTORIES) if isinstance(record, r.Trajectory)
    ]
    check_sessions(trajectories)
    check_tasks(records_of(kafka, TASKS), trajectories)
    check_trace(kafka, next(made for made in trajectories if made.metadata["role"] == "hider"))


def check_groups(control: Iterable[Record]) -> None:
    """Each policy trained groups of its own role, and dropped none of the other's."""
    trained: dict[str, set[str]] = {}
    for record in control:
        if isinstance(record, r.StepCommitted):
            groups = {group.group_id.rpartition("-")[2] for group in record.groups}
            trained[record.policy] = trained.get(record.policy, set()) | groups
        assert not isinstance(record, r.GroupDropped), record
    assert trained == {policy: {role} for role, policy in ROLES.items()}


def check_sessions(trajectories: Iterable[r.Trajectory]) -> None:
    """Each episode that was played has a session of each role, with its policy and its reward."""
    returns: dict[tuple[str, int, int], dict[str, float]] = {}
    for made in trajectories:
        role = made.metadata["role"]
        assert made.policy == ROLES[role]
        if made.status == "complete":
            name = made.group_id.rpartition("-")[0]
            rewards = returns.setdefault((name, made.sample, made.attempt), {})
            rewards[role] = sum(reward.value for reward in made.rewards)
    assert returns
    assert all(sum(rewards.values()) == 1 and len(rewards) == 2 for rewards in returns.values())


def check_tasks(tasks: Iterable[Record], trajectories: Iterable[r.Trajectory]) -> None:
    """An episode was one task, and the killed ones were tried again once for both roles."""
    issued = [
        (task.group_id, task.sample, task.attempt) for task in tasks if isinstance(task, r.Task)
    ]
    assert len(issued) == len(set(issued))
    assert {group.rpartition("-")[2] for group, _, _ in issued} == {"seeker"}
    spoilt = {
        (made.group_id.rpartition("-")[0], made.sample)
        for made in trajectories
        if made.cause == "infrastructure" and made.attempt == 0
    }
    again = {(made.group_id, made.sample) for made in trajectories if made.attempt == 1}
    assert again == {(f"{name}-{role}", sample) for name, sample in spoilt for role in ROLES}
    assert spoilt


def check_trace(kafka: KafkaSettings, session: r.Trajectory) -> None:
    """The session of the second role is followed from its group to its step."""
    place = {
        "SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "SEAMLESSFLOW_KAFKA__TOPIC_PREFIX": kafka.topic_prefix,
    }
    done = subprocess.run(
        [sys.executable, "-m", "seamlessflow", "trace", session.session_id, "--json"],
        env={**os.environ, **place, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["name"]: row["detail"] for row in json.loads(done.stdout)["whole"]}
    assert "role hider" in rows[f"group {session.group_id}"]
    assert rows["task"].startswith(session.task_id)
