"""`seamlessflow erase` on the real broker, from the log of a whole run."""

import gzip
import json
from collections.abc import Iterable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from infra.kafka.dead_letters import send_letter
from infra.kafka.producer import Producer, TransactionalProducer
from infra.kafka.reader import Reader
from infra.kafka.topics.creation import create_topics
from infra.kafka.topics.deletion import delete_before
from infra.kafka.topics.found import partition_counts
from infra.kafka.unreadable import Letter, Raw
from infra.kafka.whole_topic import read_partitions
from infra.settings import KafkaSettings
from schemas.codec import decode
from schemas.records import RequestTurn
from schemas.topics import (
    CONTROL,
    ENDED_SESSIONS,
    FLEET,
    PROMPTS,
    REPLIES,
    REQUESTS,
    SESSIONS,
    TOPICS,
    TRAJECTORIES,
)
from seamlessflow.__main__ import app
from seamlessflow.inspection.sessions.records import concerns
from tests.builders.own_topics import small
from tests.builders.records import control, fleet
from tests.builders.trajectories.exports import bring_in, brought_in
from tests.builders.trajectories.golden_topics import golden_log, write_golden
from tests.waiting import until
from trainer.recovery.checkpoint import Checkpoint
from trainer.recovery.control_state import ControlState
from trainer.recovery.low_water import RecordsGone, check_kept
from trainer.recovery.resume import Origin

LOG = golden_log("second")
ERASED = "chat-plain"
FEW = 8
Place = tuple[str, int, int]
Stored = tuple[bytes, bytes, tuple[tuple[str, bytes], ...], int]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["erase", *arguments])


def in_environment(kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__TOPIC_PREFIX", kafka.topic_prefix)


def stored(kafka: KafkaSettings) -> dict[Place, Stored]:
    """Return all records of a prefix as they stand on its topics, by topic, partition, offset."""
    counts = partition_counts(kafka)
    places = [
        (name, number)
        for topic in TOPICS.values()
        for name in (topic.name, topic.dead_letters)
        for number in range(counts.get(kafka.topic_prefix + name, 0))
    ]
    found = {}
    for item in read_partitions(kafka, places, decode=Raw):
        assert isinstance(item.record, Raw)
        value = item.record.value, item.record.key or b"", tuple(item.headers), item.timestamp_ms
        found[item.topic, item.partition, item.offset] = value
    return found


def texts() -> set[bytes]:
    """Return what the erased session's agent said and no other."""
    said: dict[bool, set[str]] = {True: set(), False: set()}
    for stands in LOG[REQUESTS.name]:
        record = decode(stands.value)
        if isinstance(record, RequestTurn):
            mine = record.session_id == ERASED
            said[mine] |= {text for one in record.messages for text in _strings(json.loads(one))}
    return {text.encode() for text in said[True] - said[False] if len(text) > 8}


def _strings(value: object) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _strings(one)


def committed(kafka: KafkaSettings) -> dict[tuple[str, int], tuple[int, str]]:
    places = [(SESSIONS.name, number) for number in range(SESSIONS.partitions)]
    with closing(Reader(kafka, "test", group="trajectory-managers")) as reader:
        found = reader.committed(places)
    assert any(at > 0 for at, _ in found.values())
    return found


@pytest.fixture
def log(kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> KafkaSettings:
    """Return a cluster with the topics of a finished run, which the environment names."""
    in_environment(kafka, monkeypatch)
    write_golden(kafka, LOG)
    create_topics(kafka, [REQUESTS, ENDED_SESSIONS, CONTROL, FLEET, *small(PROMPTS, REPLIES)])
    producer = Producer(kafka, "test", linger_ms=5)
    for topic in (REQUESTS, PROMPTS, REPLIES):
        for one in LOG[topic.name]:
            number = one.partition if topic == REQUESTS else one.partition % FEW
            producer.send_bytes(topic.name, one.value, one.key, number, one.headers)
    producer.send(CONTROL.name, control.sample_failed(group_id="g", detail="a text of it"))
    producer.send(CONTROL.name, control.lost())
    producer.send(FLEET.name, fleet.weights(), key="PolicyWeights/policy")
    send_letter(producer, Letter(SESSIONS.name, 1, 7, ERASED, b"garbage", "no schema"))
    send_letter(producer, Letter(SESSIONS.name, 1, 8, "other", b"garbage", "no schema"))
    producer.close()
    committer = TransactionalProducer(kafka, "test")
    reader = Reader(kafka, "manager", group="trajectory-managers")
    for one in LOG[ENDED_SESSIONS.name]:
        place = SESSIONS.name, one.partition
        send = partial(committer.send_bytes, ENDED_SESSIONS.name, one.value, one.key, one.partition)
        committer.commit(send, {place: (one.offset, "covered")}, reader.group_metadata())
    committer.close()
    reader.close()
    return kafka


@pytest.mark.slow
def test_nothing_of_an_erased_session_is_left_and_all_else_is_at_its_offset(
    log: KafkaSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean = log.model_copy(update={"topic_prefix": f"{log.topic_prefix}clean."})
    before, words = stored(log), {ERASED.encode(), *texts()}
    assert len(words) > 1
    assert any(word in value[0] for value in before.values() for word in words)
    step = tmp_path / "step-00000003-version-00000004.jsonl.gz"
    lines: list[dict[str, object]] = [
        {"format": 1, "step": 3, "version": 4, "lineage": "l", "policy": "p", "tokens": 5},
        {"session": ERASED, "turn": "t", "ids": [1, 2]},
        {"session": "other", "turn": "t", "ids": [1, 2, 3]},
    ]
    step.write_bytes(gzip.compress(b"".join(json.dumps(one).encode() + b"\n" for one in lines)))

    asked = [ERASED, "g.0.0", "--to", clean.topic_prefix, "--trained", str(tmp_path)]
    counted = run(*asked, "--dry-run")
    assert counted.exit_code == 0, counted.output
    assert stored(log) == before and not stored(clean)
    answer = run(*asked)
    assert answer.exit_code == 0, answer.output
    assert counted.output.replace("would erase", "erased") in answer.output
    assert "weights from version 4 on were trained with erased tokens" in answer.output

    after = stored(clean)
    assert not [at for at, one in after.items() if any(word in b"".join(one[:2]) for word in words)]
    emptied = (CONTROL.name, 0, 0)
    assert {place for place, one in after.items() if before.get(place) != one} == {emptied}
    gone = [before[place] for place in before.keys() - after.keys()]
    assert all(key == ERASED.encode() or concerns(decode(it), ERASED) for it, key, *_ in gone)
    assert committed(clean) == committed(log)
    assert b"a text of it" not in after[emptied][0]
    kept = [json.loads(line) for line in gzip.decompress(step.read_bytes()).splitlines()]
    assert kept == [lines[0] | {"tokens": 3}, lines[2]]

    in_environment(clean, monkeypatch)
    verified = CliRunner().invoke(app, ["replay", "merge", "--verify", "--json"])
    assert verified.exit_code == 0, verified.output
    assert json.loads(verified.stdout)["sessions"] == len(LOG[TRAJECTORIES.name]) - 1


def test_a_copy_goes_on_where_it_ended_and_its_prefix_takes_no_other(
    kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = kafka
    in_environment(kafka, monkeypatch)
    create_topics(kafka, small(CONTROL, FLEET, TRAJECTORIES))
    with closing(Producer(log, "test")) as producer:
        producer.send(CONTROL.name, control.lost())
        producer.send(FLEET.name, fleet.weights(), key="PolicyWeights/policy")
    clean = log.model_copy(update={"topic_prefix": f"{log.topic_prefix}clean."})
    assert run(ERASED, "--to", clean.topic_prefix).exit_code == 0
    first = stored(clean)
    with closing(Producer(log, "test")) as producer:
        producer.send(CONTROL.name, control.lost(worker="later"))

    again = run(ERASED, "--to", clean.topic_prefix)
    assert again.exit_code == 0, again.output
    new = stored(clean).keys() - first.keys()
    assert (CONTROL.name, 0, 1) in new
    assert {topic for topic, *_ in new} == {CONTROL.name, FLEET.name}  # which is compacted

    other = run("forks-acting", "--to", clean.topic_prefix)
    assert "records of another copy" in str(other.exception)
    refused = run(ERASED, "--to", log.topic_prefix)
    assert "name another" in str(refused.exception)

    kept = run(ERASED, "--to", clean.topic_prefix, "--delete-old")
    assert kept.exit_code == 1 and stored(log)
    deleted = run(ERASED, "--to", clean.topic_prefix, "--delete-old", "--yes")
    assert deleted.exit_code == 0, deleted.output
    until(lambda: log.topic_prefix + CONTROL.name not in partition_counts(log), "the deletion")
    assert stored(clean).keys() >= first.keys()


@pytest.mark.parametrize("option", ["--exports", "--trained"])
def test_a_directory_that_is_not_there_is_refused_before_anything_is_written(
    kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch, option: str, tmp_path: Path
) -> None:
    in_environment(kafka, monkeypatch)
    monkeypatch.setenv("COLUMNS", "300")
    create_topics(kafka, small(CONTROL))
    file = tmp_path / "file.jsonl"
    file.touch()
    for wrong in (tmp_path / "missing", file):
        refused = run(ERASED, "--to", f"{kafka.topic_prefix}clean.", option, str(wrong))
        assert refused.exit_code == 2
        assert option in refused.output and str(wrong) in refused.output
    assert f"{kafka.topic_prefix}clean.{CONTROL.name}" not in partition_counts(kafka)


def test_other_prefixes_are_named_and_one_of_trajectories_alone_is_erased_from(
    kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    in_environment(kafka, monkeypatch)
    create_topics(kafka, small(CONTROL, TRAJECTORIES))
    foreign, clean = f"{kafka.topic_prefix}foreign.", f"{kafka.topic_prefix}clean."
    exported = tmp_path / "chains.jsonl"
    rows = [{"token_ids": [1], "mask": [1], "session_id": one} for one in (ERASED, "other")]
    exported.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert bring_in(exported, "--to", foreign).exit_code == 0

    named = run(ERASED, "--to", clean)
    assert f"also look at: erase {ERASED} --from {foreign} --to ..." in named.output
    assert f"--from {kafka.topic_prefix} " not in named.output
    assert f"--from {clean}" not in named.output

    erased = run(ERASED, "--from", foreign, "--to", f"{foreign}clean.")
    assert "erased 1 of trajectories (1 Trajectory); kept 1" in erased.output
    assert "was imported from such a session" in erased.output
    (left,) = brought_in(kafka, f"{foreign}clean.")
    assert left.metadata["foreign_session_id"] == "other"


def test_an_empty_prefix_is_deleted_without_asking_or_not_at_all(
    kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_environment(kafka, monkeypatch)
    clean = f"{kafka.topic_prefix}clean."
    refused = run(ERASED, "--from", "", "--to", clean, "--delete-old")
    assert "prefix of the old topics is empty, so it cannot be typed: add --yes" in str(
        refused.exception
    )
    assert "type the prefix" not in refused.output


def test_records_that_retention_removed_are_gone_from_the_copy_and_a_checkpoint_in_them_is_refused(
    kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_environment(kafka, monkeypatch)
    create_topics(kafka, small(CONTROL, TRAJECTORIES))
    with closing(Producer(kafka, "test")) as producer:
        for worker in "abcd":
            producer.send(CONTROL.name, control.lost(worker=worker))
    delete_before(kafka, {(CONTROL.name, 0): 2})
    clean = kafka.model_copy(update={"topic_prefix": f"{kafka.topic_prefix}clean."})
    assert run(ERASED, "--to", clean.topic_prefix).exit_code == 0
    assert stored(clean) == stored(kafka)
    assert {at for *_, at in stored(clean)} == {2, 3}

    for log in (kafka, clean):
        check_kept(log, checkpoint_at(2))
        with pytest.raises(RecordsGone, match=r"control\[0\] at offset 1, .*keeps 2 to 4"):
            check_kept(log, checkpoint_at(1))


def checkpoint_at(offset: int) -> Checkpoint:
    state = ControlState("policy", offset=offset)
    return Checkpoint(Origin(), {0: 0}, state, 0, False, directory=Path())
