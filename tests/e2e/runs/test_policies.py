"""A run of two policies that answer the two modules of one agent, each with its own trainer.

A worker that both share serves the one whose turns wait. Agents ask the first module until the test
has seen the worker serve its policy, then the second one in the same way.
"""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.audit.audit import audit
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import CONTROL, SESSIONS
from tests.builders.auditing.trained_files import read_trained
from tests.e2e.runs.short_run import records_of, run_log, short_run, started
from tests.live_log import LiveLog

pytestmark = pytest.mark.slow

LIMIT_S = 240
STEPS = 2
SHARED = "w2"
POLICIES = {"policy": "one is over", "second": "two is over"}
"""Each policy with the file that ends the calls of its module."""
AGENT = """
from pathlib import Path

from openai import AsyncOpenAI

async def run(task, session):
    client = AsyncOpenAI(
        base_url=session.base_url, api_key=session.api_key, http_client=session.http_client
    )
    for module in ("one", "two"):
        turns = 0
        while not turns or not Path(f"{module} is over").exists():
            await client.chat.completions.create(
                model=session.model,
                max_tokens=8,
                messages=[{"role": "user", "content": f"{module} {turns}"}],
                extra_headers={"x-seamlessflow-module": module},
            )
            turns += 1
    return float(session.session_id.split(".")[1]) % 2
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
            {"id": SHARED, "tags": ["rollout", "shared"]},
        ],
        "policies": {"second": {"trainer": {"seed": 1}}},
        "rollout": {"engine": "scripted", "scripted": {"tokens_per_second": 20}},
        "scheduler": {"balance_s": 1},
    }
    values["pacing"]["task_timeout_s"] = LIMIT_S
    values["agents"]["modules"] = {"two": "second"}
    file.write_text(yaml.safe_dump(values))
    return file


def serve_both(directory: Path, log: LiveLog) -> None:
    """Shift the load from one policy to the other once the shared worker serves the one."""
    since_ms = 0
    for policy, file in POLICIES.items():
        (served, *_) = log.wait(
            r.RoleAcquired,
            lambda record, name=policy, since=since_ms: (  # type: ignore[misc]
                (record.worker, record.policy) == (SHARED, name) and record.at_ms > since
            ),
        )
        (sampled, *_) = log.wait(
            r.TurnCompleted,
            lambda record, since=served.at_ms: record.worker == SHARED and record.at_ms > since,  # type: ignore[misc]
        )
        since_ms = sampled.at_ms
        (directory / file).touch()


def trained(folder: Path) -> set[tuple[str, str, int]]:
    """Return the trained tokens in a folder as (session, turn, offset)."""
    return {
        (run.session, run.turn, run.offset + place)
        for path in folder.glob("step-*.jsonl.gz")
        for run in read_trained(path)[1]
        for place in range(len(run.ids))
    }


def test_each_policy_trains_its_own_tokens_of_the_sessions_that_both_answer(
    kafka: KafkaSettings, tmp_path: Path, config: Path
) -> None:
    out = tmp_path / "out"
    with started(config, "train") as run:
        with closing(run_log(kafka, out, LIMIT_S)) as log:
            serve_both(tmp_path, log)
        said, _ = run.communicate(timeout=LIMIT_S)
    assert run.returncode == 0, said
    assert f"second: step {STEPS}/{STEPS}" in said

    figures = json.loads((out / "summary.json").read_text())
    assert {
        name: summary["steps"] for name, summary in figures["policies"].items()
    } == dict.fromkeys(POLICIES, STEPS)
    assert figures["steps"] == STEPS * len(POLICIES)
    assert figures["tokens_trained"] == figures["checks"]["tokens_checked"] > 0
    assert figures["checks"]["mismatches"] == figures["checks"]["trained_twice"] == 0
    assert (out / "policies" / "second" / "weights" / "final").is_dir()

    report = audit(kafka, out / "trained")
    control, events = records_of(kafka, CONTROL), records_of(kafka, SESSIONS)
    assert report.clean, report.violations
    assert not report.result("groups").open, "all credits are returned"
    check_tokens(out / "trained", events)
    check_shared(control, events)


def check_tokens(folder: Path, events: list[Record]) -> None:
    """Each policy trained tokens of its own turns alone, in sessions that both answered."""
    asked = {
        record.turn_id: record.policy for record in events if isinstance(record, r.TurnStarted)
    }
    first, second = trained(folder), trained(folder / "second")
    assert {asked[turn] for _, turn, _ in first} == {"policy"}
    assert {asked[turn] for _, turn, _ in second} == {"second"}
    assert {session for session, _, _ in first} & {session for session, _, _ in second}


def check_shared(control: list[Record], events: list[Record]) -> None:
    """The shared worker served one policy, then the other, and only with turns of that one."""
    roles = [
        record
        for record in control
        if isinstance(record, r.RoleAcquired) and record.worker == SHARED
    ]
    served = [role.policy for role in roles]
    assert served.index("policy") < len(served) - 1 - served[::-1].index("second")
    assert len({role.incarnation for role in roles}) == 1, "it is one process all the time"
    asked = {
        record.turn_id: record.policy for record in events if isinstance(record, r.TurnStarted)
    }
    ended = [
        record
        for record in events
        if isinstance(record, r.TurnCompleted) and record.worker == SHARED
    ]
    assert {asked[turn.turn_id] for turn in ended} == set(POLICIES)
