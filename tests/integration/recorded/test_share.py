"""Groups shared as signed text on a real broker: published by a run, taken for the pool of another.

Ten thousand bad records of all kinds end nothing.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from seamlessflow.__main__ import app
from seamlessflow.demo.tokenizer import make_tokenizer
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader import ReadingRules
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.kafka.unreadable import Raw, Skipped
from seamlessflow.infra.kafka.whole_topic import read_partitions, read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.share.content import MOST_BYTES, SharedSession, read_content
from seamlessflow.recorded.share.examining import Reason, signed_content, trajectories_of
from seamlessflow.recorded.share.keys import SigningKey, is_signed
from seamlessflow.recorded.share.publishing import Publishing, PublishingJob
from seamlessflow.recorded.share.taking import TakingJob, TakingOutcome, take
from seamlessflow.schemas.records import Reward, SharedGroup, StepGroup, Trajectory
from seamlessflow.schemas.topics import CONTROL, SESSIONS, SHARED, TRAJECTORIES
from seamlessflow.trainer.credit import ONE_REWARD
from seamlessflow.trainer.data.sessions import ValidSession, is_unscored
from seamlessflow.trainer.mixing.stored import StoredRules, left_out, stored_session
from tests.builders.own_topics import own_topics, small
from tests.builders.records import control
from tests.builders.records.content import ids, message
from tests.builders.records.sessions import closed, finalized, rewarded
from tests.builders.shared_groups import (
    STRANGERS,
    TASKS,
    THEIRS,
    answered,
    content_of,
    judge,
    renderer,
    rules,
    value_of,
)
from tests.builders.trajectories.conversation import Conversation

GOOD = 40
DEADLINE_S = 120
NAMES = list(TASKS)
JUDGE = """
def judge(task, text, *, right=1.0):
    return right if f"code {task['table'][task['key']]}" in text else 0.0
"""


@pytest.fixture
def team(broker: KafkaSettings) -> Iterator[KafkaSettings]:
    """Yield the topics of a team, without any yet."""
    with own_topics(broker) as kafka:
        yield kafka


@pytest.fixture
def pool(broker: KafkaSettings) -> Iterator[KafkaSettings]:
    with own_topics(broker) as kafka:
        yield kafka


def bad_value(number: int) -> tuple[bytes, Reason]:
    """Return a bad record of each kind in turn."""
    content = content_of(group=f"bad-{number}")
    kinds = (
        (b"garbage %d" % number, Reason.MALFORMED),
        (value_of(b'{"version": %d}' % number), Reason.MALFORMED),
        (value_of(content_of(SharedSession((), 1.0), group=str(number))), Reason.MALFORMED),
        (value_of(content, signature=b""), Reason.UNSIGNED),
        (value_of(content, STRANGERS), Reason.UNKNOWN_SIGNER),
        (value_of(content, STRANGERS, signer=THEIRS.public), Reason.WRONG_SIGNATURE),
        (value_of(replace(content, task={"id": f"t{number}"})), Reason.UNKNOWN_TASK),
        (value_of(good(number % GOOD)), Reason.REPEATED),
        (value_of(content_of(answered(), task=NAMES[-1], group=str(number))), Reason.JUDGE_FAILED),
    )
    if number % 1_000 == 999:
        return value_of(b"x" * (MOST_BYTES + 1)), Reason.TOO_LARGE
    return kinds[number % len(kinds)]


def good(number: int) -> Any:
    task = NAMES[number]
    return content_of(answered(task), answered(task, 0.0), task=task, group=f"good-{number}")


def failing(task: dict[str, Any], text: str) -> float:
    if task["id"] == NAMES[-1]:
        raise RuntimeError("this task has no judge")
    return judge(task, text)


def publish_values(kafka: KafkaSettings, values: list[bytes]) -> None:
    create_topics(kafka, [SHARED])
    producer = Producer(kafka, "values", linger_ms=5)
    for value in values:
        producer.send_bytes(SHARED.name, value, b"\xff", 0)
    producer.flush(DEADLINE_S)
    producer.close()


def letters(pool: KafkaSettings) -> list[tuple[int, str]]:
    """Return the offset and the error of each dead letter."""
    places = [(SHARED.dead_letters, 0)]
    items = read_partitions(pool, places, rules=ReadingRules(decode=Raw))
    headers = [dict(item.headers) for item in items]
    return [(int(each["source-offset"]), each["error"].decode()) for each in headers]


def taken(pool: KafkaSettings) -> list[Trajectory]:
    items = read_topic(pool, TRAJECTORIES, Skipped())
    return [item.record for item in items if isinstance(item.record, Trajectory)]


@pytest.mark.parametrize("bad", [1_000, 10_000])
def test_bad_records_end_nothing(bad: int, team: KafkaSettings, pool: KafkaSettings) -> None:
    values: list[bytes] = []
    wrong: dict[int, Reason] = {}
    for number in range(bad + GOOD):
        value, reason = bad_value(number)
        # The first of equal groups is a good one, wherever it stands.
        if reason is not Reason.REPEATED or value in values:
            wrong[len(values)] = reason
        values.append(value)
    publish_values(team, values)

    job = TakingJob(team.topic_prefix, pool.topic_prefix, rules(failing))
    outcome = TakingOutcome()
    take(team.model_copy(update={"topic_prefix": "run."}), job, outcome)
    assert outcome.left_out == Counter(wrong.values())
    assert set(outcome.left_out) == set(Reason)
    assert sum(outcome.left_out.values()) == bad
    assert (outcome.groups, outcome.sessions) == (GOOD, 2 * GOOD)
    buried = letters(pool)
    assert [at for at, _ in buried] == sorted(wrong)
    assert all(error.startswith(wrong[at]) for at, error in buried)
    assert sorted({made.task_id for made in taken(pool)}) == sorted(NAMES[:GOOD])

    repeated = TakingOutcome()
    take(team.model_copy(update={"topic_prefix": "run."}), job, repeated)
    assert (repeated.groups, repeated.already_taken) == (0, GOOD)
    assert repeated.left_out == outcome.left_out
    assert len(letters(pool)) == bad
    assert len(taken(pool)) == 2 * GOOD


def test_what_is_published_later_is_taken_too(team: KafkaSettings, pool: KafkaSettings) -> None:
    publish_values(team, [value_of(good(0))])
    later = [value_of(good(1)), b"garbage"]
    outcome = TakingOutcome()
    deadline_s = time.monotonic() + DEADLINE_S

    def stopping() -> bool:
        if outcome.groups and later:
            publish_values(team, later)
            later.clear()
        return outcome.left_out.total() == 1 or time.monotonic() > deadline_s

    job = TakingJob(team.topic_prefix, pool.topic_prefix, rules(), follow=True)
    take(team.model_copy(update={"topic_prefix": "run."}), job, outcome, stopping)
    assert (outcome.groups, len(taken(pool)), len(letters(pool))) == (2, 4, 1)


def test_a_take_that_was_killed_goes_on(team: KafkaSettings, pool: KafkaSettings) -> None:
    publish_values(team, [value_of(good(0))])
    create_topics(pool, [TRAJECTORIES])
    place = f"{team.topic_prefix}shared[0]@0"
    (first, second) = trajectories_of(signed_content(value_of(good(0)), rules()), place, rules())
    producer = Producer(pool, "killed")
    producer.send(TRAJECTORIES.name, first, key=first.group_id)
    producer.close()
    outcome = TakingOutcome()
    job = TakingJob(team.topic_prefix, pool.topic_prefix, rules())
    take(team.model_copy(update={"topic_prefix": "run."}), job, outcome)
    assert (outcome.groups, outcome.sessions) == (1, 1)
    assert taken(pool) == [first, second]


def write_run(kafka: KafkaSettings) -> None:
    """Write the topics of a run: group g solved its task, h failed, i was never trained."""
    create_topics(kafka, small(SESSIONS, TRAJECTORIES, CONTROL))
    producer = Producer(kafka, "run", linger_ms=5)
    for group, value in (("g", 1.0), ("h", 0.0), ("i", 1.0)):
        for sample in range(2):
            built = conversation(f"{group}.{sample}", group, value if sample else 0.0)
            for event in built:
                producer.send(SESSIONS.name, event, key=f"{group}.{sample}")
    members = [StepGroup(group_id=g, sessions=(f"{g}.0", f"{g}.1")) for g in ("g", "h")]
    producer.send(CONTROL.name, control.committed(0, members), partition=0)
    producer.flush(DEADLINE_S)
    producer.close()


def conversation(name: str, group: str, value: float) -> list[Any]:
    """Return the events of a session on the first task."""
    events: list[Any] = []

    class Kept(Conversation):
        def apply(self, *applied: Any) -> "Kept":
            events.extend(applied)
            super().apply(*applied)
            return self

    made = Kept(name, task_id=NAMES[0], group_id=group)
    task = TASKS[NAMES[0]]
    code = task["table"][task["key"]] if value else "unknown"
    asked = message("user", f"key {task['key']}")
    made.ask("a", asked)
    made.answer("a", ids(10, 11, 0), message("assistant", f"code {code}"))
    end = (rewarded(Reward(value=value)), closed(), finalized())
    made.apply(*(replace(event, session_id=name) for event in end))
    return events


def test_what_is_trained_later_is_published_too(kafka: KafkaSettings, team: KafkaSettings) -> None:
    write_run(kafka)
    job = PublishingJob(team.topic_prefix, THEIRS, lambda task: None, ONE_REWARD)
    publishing = Publishing(kafka, job)
    publishing.update()
    assert publishing.outcome.published == 1
    producer = Producer(kafka, "later")
    later = StepGroup(group_id="i", sessions=("i.1",))
    reused = StepGroup(group_id="g", sessions=("g.0", "g.1"), reused=1)
    stored = StepGroup(group_id="pool/x", sessions=("pool/x.0",), pool="pool")
    producer.send(CONTROL.name, control.committed(1, [later, reused, stored]), partition=0)
    producer.close()
    publishing.update()
    contents = [read_content(record.content) for record in shared(team)]
    assert [content.provenance["group"] for content in contents] == ["g", "i"]
    # The sample that failed left its group, so it is no part of what the step trained.
    assert [len(content.sessions) for content in contents] == [2, 1]


def configuration(folder: Path, kafka: KafkaSettings, **share: Any) -> Path:
    """Write the configuration of a run with its model, tasks and judge."""
    make_tokenizer(folder / "model")
    (folder / "model" / "config.json").write_text("{}")
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in TASKS.values()))
    (folder / "my_judge.py").write_text(JUDGE)
    values = {
        "out": str(folder / "out"),
        "policy": {"model": "model", "renderer": {"name": "qwen3"}, "max_context": 512},
        "pacing": {"tasks": "tasks.jsonl"},
        "share": share,
        "kafka": {
            "bootstrap_servers": kafka.bootstrap_servers,
            "topic_prefix": kafka.topic_prefix,
        },
    }
    path = folder / "run.yaml"
    path.write_text(json.dumps(values))
    return path


def share(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["share", *map(str, arguments)], catch_exceptions=False)


def shared(team: KafkaSettings) -> list[SharedGroup]:
    items = read_topic(team, SHARED, Skipped())
    return [item.record for item in items if isinstance(item.record, SharedGroup)]


def test_a_run_publishes_what_it_trained_and_another_takes_it_for_a_pool(
    kafka: KafkaSettings,
    team: KafkaSettings,
    pool: KafkaSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_run(kafka)
    made = share("key", tmp_path / "key.pem")
    public = made.output.strip()
    assert SigningKey.read(tmp_path / "key.pem").public == public
    publisher = configuration(tmp_path, kafka, sign_with="key.pem")
    ours = team.topic_prefix
    answer = share("publish", "--config", publisher, "--to", ours)
    assert "published 1 groups with 2 sessions" in answer.output, answer.output
    assert "1 without a pass" in answer.output
    (record,) = shared(team)
    assert record.signer == public
    assert is_signed(record.content, record.signature, public)
    content = read_content(record.content)
    assert content.task == TASKS[NAMES[0]]
    assert sorted(session.reward for session in content.sessions) == [0.0, 1.0]
    assert content.provenance["group"] == "g"
    assert str(tmp_path) not in record.content.decode()
    again = share("publish", "--config", publisher, "--to", ours)
    assert "published 0 groups" in again.output
    assert "1 published before" in again.output
    assert len(shared(team)) == 1

    monkeypatch.chdir(tmp_path)
    taker = configuration(
        tmp_path,
        kafka,
        signers={"them": public},
        judge="my_judge:judge",
        functions={"my_judge:judge": {"right": 2.0}},
    )
    for count in (1, 0):
        answer = share("take", "--config", taker, "--from", ours, "--to", pool.topic_prefix)
        assert f"took {count} groups with {2 * count} sessions" in answer.output, answer.output
    sessions = taken(pool)
    stored = StoredRules("p", ONE_REWARD, renderer().hash)
    assert [left_out(each, stored) for each in sessions] == ["", ""]
    assert all(map(is_unscored, sessions))
    trained = [stored_session("pool", each, stored, 0, 0) for each in sessions]
    assert sorted(each.reward for each in trained if isinstance(each, ValidSession)) == [0.0, 2.0]
    texts = [renderer().decode(each.tokens) for each in sessions]
    assert all(f"user\nkey {TASKS[NAMES[0]]['key']}" in text for text in texts)
