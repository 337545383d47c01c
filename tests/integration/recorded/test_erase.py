"""`seamlessflow erase` on the real broker, from the log of a whole run."""

import gzip
import json
from collections.abc import Iterable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seamlessflow.__main__ import app
from seamlessflow.infra.kafka.dead_letters import send_letter
from seamlessflow.infra.kafka.producer import Producer, TransactionalProducer
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.kafka.topics.existing import delete_before, partition_counts
from seamlessflow.infra.kafka.unreadable import Letter
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.show.log import concerns
from seamlessflow.schemas.codec import decode
from seamlessflow.schemas.records import RequestTurn
from seamlessflow.schemas.topics import (
    CONTROL,
    ENDED_SESSIONS,
    FLEET,
    PROMPTS,
    REPLIES,
    REQUESTS,
    SESSIONS,
    TRAJECTORIES,
)
from seamlessflow.trainer.recovery.checkpoint import Checkpoint
from seamlessflow.trainer.recovery.control_state import ControlState
from seamlessflow.trainer.recovery.recorded_log import RecordsGone, check_kept
from seamlessflow.trainer.recovery.resume import Origin
from tests.builders.own_topics import small
from tests.builders.records import control, fleet
from tests.builders.trajectories.erasures import erase, name_cluster, records
from tests.builders.trajectories.golden_topics import golden_log, write_golden
from tests.waiting import until

LOG = golden_log()
ERASED = "chat-lenient"
FEW = 8


def texts() -> set[bytes]:
    """Return what the erased session's agent said and no other."""
    said: dict[bool, set[str]] = {True: set(), False: set()}
    for stands in LOG[REQUESTS.name]:
        record = decode(stands.value)
        if isinstance(record, RequestTurn):
            mine = record.session_id == ERASED
            said[mine] |= {
                text for message in record.messages for text in _strings(json.loads(message))
            }
    return {text.encode() for text in said[True] - said[False] if len(text) > 8}


def _strings(value: object) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


def committed(kafka: KafkaSettings) -> dict[tuple[str, int], tuple[int, str]]:
    places = [(SESSIONS.name, number) for number in range(SESSIONS.partitions)]
    with closing(Reader(kafka, "test", group="trajectory-managers")) as reader:
        offsets = reader.committed(places)
    assert any(at > 0 for at, _ in offsets.values())
    return offsets


@pytest.fixture
def log(kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> KafkaSettings:
    """Return a cluster with the topics of a finished run, which the environment names."""
    name_cluster(kafka, monkeypatch)
    write_golden(kafka, LOG)
    create_topics(kafka, [CONTROL, FLEET, *small(REQUESTS, ENDED_SESSIONS, PROMPTS, REPLIES)])
    producer = Producer(kafka, "test", linger_ms=5)
    for topic in (REQUESTS, PROMPTS, REPLIES):
        for record in LOG[topic.name]:
            number = record.partition if topic == REQUESTS else record.partition % FEW
            producer.send_bytes(topic.name, record.value, record.key, number, record.headers)
    producer.send(CONTROL.name, control.sample_failed(group_id="g", detail="a text of it"))
    producer.send(CONTROL.name, control.lost())
    producer.send(FLEET.name, fleet.weights(), key="PolicyWeights/policy")
    send_letter(producer, Letter(SESSIONS.name, 1, 7, ERASED, b"garbage", "no schema"))
    send_letter(producer, Letter(SESSIONS.name, 1, 8, "other", b"garbage", "no schema"))
    producer.close()
    committer = TransactionalProducer(kafka, "test")
    reader = Reader(kafka, "manager", group="trajectory-managers")
    for record in LOG[ENDED_SESSIONS.name]:
        place = SESSIONS.name, record.partition
        send = partial(
            committer.send_bytes, ENDED_SESSIONS.name, record.value, record.key, record.partition
        )
        committer.commit(send, {place: (record.offset, "covered")}, reader.group_metadata())
    committer.close()
    reader.close()
    return kafka


@pytest.mark.slow
def test_nothing_of_an_erased_session_is_left_and_all_else_is_at_its_offset(
    log: KafkaSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean = log.model_copy(update={"topic_prefix": f"{log.topic_prefix}clean."})
    before, words = records(log), {ERASED.encode(), *texts()}
    assert len(words) > 1
    assert any(word in value[0] for value in before.values() for word in words)
    step = tmp_path / "step-00000003-version-00000004.jsonl.gz"
    lines: list[dict[str, object]] = [
        {"format": 1, "step": 3, "version": 4, "lineage": "l", "policy": "p", "tokens": 5},
        {"session": ERASED, "turn": "t", "ids": [1, 2]},
        {"session": "other", "turn": "t", "ids": [1, 2, 3]},
    ]
    step.write_bytes(gzip.compress(b"".join(json.dumps(line).encode() + b"\n" for line in lines)))

    asked = [ERASED, "g.0.0", "--to", clean.topic_prefix, "--trained", str(tmp_path)]
    counted = erase(*asked, "--dry-run")
    assert counted.exit_code == 0, counted.output
    assert records(log) == before and not records(clean)
    answer = erase(*asked)
    assert answer.exit_code == 0, answer.output
    assert counted.output.replace("would erase", "erased") in answer.output
    assert "weights from version 4 on were trained with erased tokens" in answer.output

    after = records(clean)
    assert not [
        at for at, record in after.items() if any(word in b"".join(record[:2]) for word in words)
    ]
    emptied = (CONTROL.name, 0, 0)
    assert {place for place, record in after.items() if before.get(place) != record} == {emptied}
    gone = [before[place] for place in before.keys() - after.keys()]
    assert all(key == ERASED.encode() or concerns(decode(it), ERASED) for it, key, *_ in gone)
    assert committed(clean) == committed(log)
    assert b"a text of it" not in after[emptied][0]
    kept = [json.loads(line) for line in gzip.decompress(step.read_bytes()).splitlines()]
    assert kept == [lines[0] | {"tokens": 3}, lines[2]]

    name_cluster(clean, monkeypatch)
    verified = CliRunner().invoke(app, ["replay", "merge", "--verify", "--json"])
    assert verified.exit_code == 0, verified.output
    assert json.loads(verified.stdout)["sessions"] == len(LOG[TRAJECTORIES.name]) - 1


def test_a_copy_goes_on_where_it_ended_and_its_prefix_takes_no_other(
    kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = kafka
    name_cluster(kafka, monkeypatch)
    create_topics(kafka, small(CONTROL, FLEET, TRAJECTORIES))
    with closing(Producer(log, "test")) as producer:
        producer.send(CONTROL.name, control.lost())
        producer.send(FLEET.name, fleet.weights(), key="PolicyWeights/policy")
    clean = log.model_copy(update={"topic_prefix": f"{log.topic_prefix}clean."})
    assert erase(ERASED, "--to", clean.topic_prefix).exit_code == 0
    first = records(clean)
    with closing(Producer(log, "test")) as producer:
        producer.send(CONTROL.name, control.lost(worker="later"))

    again = erase(ERASED, "--to", clean.topic_prefix)
    assert again.exit_code == 0, again.output
    new = records(clean).keys() - first.keys()
    assert (CONTROL.name, 0, 1) in new
    assert {topic for topic, *_ in new} == {CONTROL.name, FLEET.name}  # which is compacted

    other = erase("forks-acting", "--to", clean.topic_prefix)
    assert "records of another copy" in str(other.exception)
    assert "'clean' is no prefix" in str(erase(ERASED, "--to", "clean").exception)
    refused = erase(ERASED, "--to", log.topic_prefix)
    assert "name another" in str(refused.exception)

    kept = erase(ERASED, "--to", clean.topic_prefix, "--delete-old")
    assert kept.exit_code == 1 and records(log)
    deleted = erase(ERASED, "--to", clean.topic_prefix, "--delete-old", "--yes")
    assert deleted.exit_code == 0, deleted.output
    until(lambda: log.topic_prefix + CONTROL.name not in partition_counts(log), "the deletion")
    assert records(clean).keys() >= first.keys()


def test_records_that_retention_removed_are_gone_from_the_copy_and_a_checkpoint_in_them_is_refused(
    kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_cluster(kafka, monkeypatch)
    create_topics(kafka, small(CONTROL, TRAJECTORIES))
    with closing(Producer(kafka, "test")) as producer:
        for worker in "abcd":
            producer.send(CONTROL.name, control.lost(worker=worker))
    delete_before(kafka, {(CONTROL.name, 0): 2})
    clean = kafka.model_copy(update={"topic_prefix": f"{kafka.topic_prefix}clean."})
    assert erase(ERASED, "--to", clean.topic_prefix).exit_code == 0
    assert records(clean) == records(kafka)
    assert {at for *_, at in records(clean)} == {2, 3}

    for log in (kafka, clean):
        check_kept(log, checkpoint_at(2))
        with pytest.raises(RecordsGone, match=r"control\[0\] at offset 1, .*keeps 2 to 4"):
            check_kept(log, checkpoint_at(1))


def checkpoint_at(offset: int) -> Checkpoint:
    state = ControlState("policy", offset=offset)
    return Checkpoint(Origin(), {0: 0}, state, 0, directory=Path())
