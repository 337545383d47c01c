"""A run whose fleet changes: a class of workers is killed at once and comes back, and a worker
joins and leaves. The scheduler gives all roles, and nothing of any session is lost.

The engines are scripted: every answer is the same, so one that misses or repeats a token shows.
Agents go on with further turns until the test has seen all that it waits for.
"""

import json
import os
import signal
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.audit.audit import audit
from seamlessflow.recorded.audit.sampled_tokens import recorded_session
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import CONTROL, SESSIONS, TRAJECTORIES
from tests.e2e.runs.short_run import processes_of, records_of, run_log, short_run, started
from tests.live_log import LiveLog
from tests.waiting import until

pytestmark = pytest.mark.slow

LIMIT_S = 240
STEPS = 2
SESSIONS_AT_ONCE = 8
CLASS_A = ("a0", "a1")
JOINS = "a2"
TAGS_A = ["rollout", "hw:A"]
AGENT = """
from pathlib import Path

from openai import AsyncOpenAI

async def run(task, session):
    client = AsyncOpenAI(
        base_url=session.base_url, api_key=session.api_key, http_client=session.http_client
    )
    turns = 0
    while not turns or not Path("over").exists():
        await client.chat.completions.create(
            model=session.model, messages=[{"role": "user", "content": f"key {turns}"}]
        )
        turns += 1
    return float(session.session_id.split(".")[1]) % 2
"""
SCRIPTED = {"text": "one two three ", "tokens": 80, "tokens_per_second": 25}
"""An answer lasts long enough to be cut in the middle."""


@pytest.fixture
def config(kafka: KafkaSettings, tmp_path: Path) -> Path:
    """Return a configuration of two classes, in which half of the sessions require the one that
    the others prefer."""
    file = short_run(tmp_path, AGENT, STEPS, modelled=True, kafka=kafka)
    values: dict[str, Any] = yaml.safe_load(file.read_text())
    values["workers"] = [
        {"id": "w0", "tags": ["rollout", "train"]},
        *({"id": worker, "tags": TAGS_A} for worker in CLASS_A),
    ]
    values["run"]["groups_per_step"] = 1
    values["rollout"] = {"engine": "scripted", "scripted": SCRIPTED}
    values["pacing"] |= {"shuffle": False, "task_timeout_s": LIMIT_S}
    tasks = ({"id": str(n), "metadata": {"worker_tags": "hw:A" + "!" * (n % 2)}} for n in range(9))
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    file.write_text(yaml.safe_dump(values))
    return file


def serving(log: LiveLog, *workers: str, lost: Mapping[str, str]) -> dict[str, str]:
    """Wait until these workers sample, not as their lost incarnations; return the present ones."""
    incarnations = {}
    for worker in workers:
        (first, *_) = log.wait(
            r.TurnProgressed,
            lambda record, name=worker: (  # type: ignore[misc]
                record.worker == name and record.incarnation != lost.get(name)
            ),
        )
        incarnations[worker] = first.incarnation
    return incarnations


def sampling(log: LiveLog) -> set[str]:
    """Return the sessions that have a token; wait for a further record."""
    log.wait(r.TurnProgressed, count=len(log.all(r.TurnProgressed)) + 1)
    return {record.session_id for record in log.all(r.TurnProgressed)}


def kill(out: Path) -> None:
    """Kill the rollout processes of the class, both before either can come back."""
    for worker in CLASS_A:
        (process,) = processes_of(out, "seamlessflow.producers.rollout", f'"worker": "{worker}"')
        os.kill(process, signal.SIGKILL)


def change_fleet(kafka: KafkaSettings, config: Path, out: Path) -> None:
    """Kill a class and wait until it serves again; let a worker join, serve and leave."""
    with closing(run_log(kafka, out, LIMIT_S)) as log:
        before = serving(log, *CLASS_A, lost={})
        until(lambda: len(sampling(log)) == SESSIONS_AT_ONCE, "tokens of all sessions", LIMIT_S)
        kill(out)
        serving(log, *CLASS_A, lost=before)
        with started(config, "worker", JOINS, "--tags", ",".join(TAGS_A)) as joined:
            serving(log, JOINS, lost={})
            joined.send_signal(signal.SIGTERM)
            said, _ = joined.communicate(timeout=LIMIT_S)
        assert joined.returncode == 0, said
        log.wait(r.WorkerLost, lambda record: (record.worker, record.reason) == (JOINS, "ended"))


def test_a_class_of_workers_is_lost_and_comes_back_and_a_worker_joins_and_leaves(
    kafka: KafkaSettings, tmp_path: Path, config: Path
) -> None:
    out = tmp_path / "out"
    with started(config, "train") as run:
        change_fleet(kafka, config, out)
        (tmp_path / "over").touch()
        said, _ = run.communicate(timeout=LIMIT_S)
    assert run.returncode == 0, said

    report = audit(kafka, out / "trained")
    control, events, made = (
        records_of(kafka, topic) for topic in (CONTROL, SESSIONS, TRAJECTORIES)
    )
    assert report.clean, report.violations
    assert not report.result("groups").open, "all credits are returned"
    check_roles(control)
    check_groups(control)
    check_moves(control, events)
    check_answers(made)


def check_roles(control: list[Record]) -> None:
    """The scheduler gave each incarnation its role, and noticed the ends of the others."""
    roles = [
        (record.worker, record.role) for record in control if isinstance(record, r.RoleAcquired)
    ]
    for worker in CLASS_A:
        assert roles.count((worker, "rollout")) == 2
    assert roles.count((JOINS, "rollout")) == 1
    lost = {record.worker for record in control if isinstance(record, r.WorkerLost)}
    assert lost >= {*CLASS_A, JOINS}


def check_groups(control: list[Record]) -> None:
    """Each group that was admitted is in a step."""
    admitted = {record.group_id for record in control if isinstance(record, r.GroupAdmitted)}
    steps = [record for record in control if isinstance(record, r.StepCommitted)]
    assert len(steps) == STEPS
    assert admitted == {group.group_id for step in steps for group in step.groups}


def check_moves(control: list[Record], events: list[Record]) -> None:
    """Turns went on elsewhere behind their tokens, and turns that require the class waited."""
    again = [
        record for record in events if isinstance(record, r.TurnDispatched) and record.dispatch > 1
    ]
    spilled = [record for record in again if record.reason == "worker_lost, spilled over from hw:A"]
    assert {record.worker for record in spilled} == {"w0"}
    assert max(record.from_offset for record in spilled) > 0
    (left,) = (
        record
        for record in control
        if isinstance(record, r.RoleReleased) and record.worker == JOINS
    )
    assert left.handed_back > 0
    required = [record for record in again if record.reason.endswith("to hw:A!")]
    assert required
    assert {record.worker for record in required} <= {*CLASS_A, JOINS}


def check_answers(made: list[Record]) -> None:
    """Every turn, moved or not, has all tokens of the script."""
    sessions = [recorded_session(record) for record in made if isinstance(record, r.Trajectory)]
    turns = [turn for session in sessions for turn in session.turns.values()]
    assert len({bytes(turn.ids) for turn in turns}) == 1
    assert turns[0].length == SCRIPTED["tokens"] + 1  # type: ignore[operator]
