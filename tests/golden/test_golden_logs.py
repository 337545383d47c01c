"""Logs of earlier releases give today what they gave then, byte for byte."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, TypeGuard

import pytest
from fastavro import schemaless_writer

from seamlessflow.consumers.trajectories.matching.match import SINCE_RULES
from seamlessflow.consumers.trajectories.sessions.assemble import trajectory
from seamlessflow.consumers.trajectories.sessions.message_keys import Strictness
from seamlessflow.consumers.trajectories.sessions.partition import Partition, PartitionProgress
from seamlessflow.schemas.codec import decode
from seamlessflow.schemas.records import (
    CloseSession,
    PolicyWeights,
    Record,
    SessionOpened,
    Trajectory,
    TurnStarted,
)
from seamlessflow.schemas.registry import parsed, schema_versions
from seamlessflow.schemas.topics import FLEET, REQUESTS, SESSIONS, TOPICS, TRAJECTORIES
from tests.golden.golden_log import LOGS, GoldenLog, GoldenRecord, read

MARKER_BYTES, HEADER_BYTES = 2, 10
FILES = sorted(LOGS.iterdir())
REASONS = {
    *("abandoned", "cancelled", "cut", "eval"),
    *("inexact_version", "prompt_mismatch", "too_large", "undelivered"),
    *("inexact_greedy", "inexact_json_schema", "inexact_top_p"),
}
LIMITS = {"", "context", "max_tokens"}
Policies = Callable[[str], Strictness]


@pytest.fixture(params=FILES, ids=lambda path: path.name.partition(".")[0])
def log(request: pytest.FixtureRequest) -> GoldenLog:
    path: Path = request.param
    return read(path)


def partitions(log: GoldenLog) -> Mapping[int, list[Record]]:
    """Return the events of each partition of `sessions`; the place in the list is the offset."""
    by_partition: dict[int, list[Record]] = {}
    for record in log[SESSIONS.name]:
        events = by_partition.setdefault(record.partition, [])
        assert record.offset == len(events)
        events.append(decode(record.value))
    return by_partition


def policies(log: GoldenLog) -> Policies:
    weights = [decode(record.value) for record in log[FLEET.name]]
    strictness = {
        record.policy: record.strictness for record in weights if isinstance(record, PolicyWeights)
    }
    return lambda policy: strictness[policy]  # type: ignore[return-value]


def events_of(log: GoldenLog) -> list[Record]:
    return [decode(record.value) for record in log[SESSIONS.name]]


def golden(log: GoldenLog) -> dict[str, bytes]:
    """Return the trajectories of that time, as they were written, by session."""
    made = [(decode(record.value), record.value) for record in log[TRAJECTORIES.name]]
    return {record.session_id: value for record, value in made if isinstance(record, Trajectory)}


class Replay:
    """One partition, folded from an offset on."""

    def __init__(self, number: int, progress: PartitionProgress, strictness: Policies) -> None:
        self.partition = Partition(number, progress, "manager")
        self._strictness = strictness

    def read(self, events: Sequence[Record], start: int, end: int) -> list[Trajectory]:
        """Return the trajectories of the sessions that these events finalize."""
        made = []
        for offset in range(start, end):
            folded = self.partition.apply(events[offset], offset, self._strictness)
            session = folded.session
            if folded.accepted and session is not None and session.finalized_at_ms is not None:
                made.append(trajectory(session, self.partition.number))
                self.partition.end(session)
        return made


def assert_same(made: Trajectory, then: bytes) -> None:
    """Check a trajectory's bytes in the schema of one that an earlier release wrote."""
    body = BytesIO()
    schemaless_writer(body, _schema(then[MARKER_BYTES:HEADER_BYTES].hex()), _plain(made))
    if body.getvalue() != then[HEADER_BYTES:]:
        before = vars(decode(then))
        changed = {name: (before[name], new) for name, new in vars(made).items()}
        pytest.fail(f"{made.session_id}: {[n for n, (a, b) in changed.items() if a != b]}")


@cache
def _schema(version: str) -> Any:
    return parsed(schema_versions()["Trajectory"][version])


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return {name: _plain(each) for name, each in vars(value).items()}
    if isinstance(value, Mapping):
        return dict(sorted(value.items()))
    return [*map(_plain, value)] if isinstance(value, tuple) else value


def test_an_old_log_gives_the_same_bytes(log: GoldenLog) -> None:
    """Holds invariant I7."""
    before, made = golden(log), []
    for number, events in partitions(log).items():
        replay = Replay(number, PartitionProgress(), policies(log))
        made += replay.read(events, 0, len(events))

    assert len(made) == len(before)
    for record in made:
        assert_same(record, before[record.session_id])


def test_an_old_log_gives_the_same_bytes_wherever_a_takeover_reads_from(log: GoldenLog) -> None:
    """Holds invariant I7."""
    before, strictness = golden(log), policies(log)
    for number, events in partitions(log).items():
        for cut in range(len(events) + 1):
            early = Replay(number, PartitionProgress(), strictness)
            made = early.read(events, 0, cut)
            _, progress = early.partition.committable()
            late = Replay(number, PartitionProgress.decode(progress.encode()), strictness)
            ended = {session.session_id for session in made}
            again = late.read(events, progress.rebuild, len(events))
            made += [session for session in again if session.session_id not in ended]

            for record in made:
                assert_same(record, before[record.session_id])
            opened = {event.session_id for event in events if isinstance(event, SessionOpened)}
            assert {session.session_id for session in made} == opened


def test_every_record_of_an_old_log_can_be_read(log: GoldenLog) -> None:
    unread = [
        (record.topic, record.partition, record.offset)
        for records in log.values()
        for record in records
        if not isinstance(decode(record.value), TOPICS[record.topic].records)
    ]

    assert unread == []


def test_the_logs_have_every_kind_of_session(log: GoldenLog) -> None:
    """A log that lacks a case proves nothing about it."""
    made = [decode(record.value) for record in log[TRAJECTORIES.name]]
    events = {type(event) for event in events_of(log)}

    trajectories = [record for record in made if isinstance(record, Trajectory)]
    reasons = {reason for session in trajectories for reason in session.masked_tokens}
    rules = {rule for session in trajectories for rule in session.match_rules}
    assert events >= set(SESSIONS.records)
    assert rules == {"root", "render", "extend", "same"}
    assert reasons >= REASONS
    assert {session.limit for session in trajectories} >= LIMITS
    assert any(session.interrupted_turns for session in trajectories)
    assert any(session.version_min != session.version_max for session in trajectories)
    assert any(sum(session.ignored_events.values()) for session in trajectories)


def test_the_logs_have_calls_that_need_rules_of_their_own(log: GoldenLog) -> None:
    turns = [event for event in events_of(log) if isinstance(event, TurnStarted)]
    commands = [decode(record.value) for record in log[REQUESTS.name]]
    closes = [
        (command.session_id, command.idempotency_key)
        for command in commands
        if _keyed_close(command)
    ]

    assert any(turn.siblings == "all" for turn in turns)
    assert any(turn.prefill for turn in turns)
    assert len(closes) > len(set(closes))


def test_the_logs_have_answers_that_nobody_sampled_under_both_rules(log: GoldenLog) -> None:
    """An intervention is known from the fold's rules 2 on."""
    events = events_of(log)
    (rules,) = {event.fold_version for event in events if isinstance(event, SessionOpened)}
    intervened = {turn.intervened for turn in events if isinstance(turn, TurnStarted)}

    assert intervened == ({False, True} if rules >= SINCE_RULES else {False})


def _keyed_close(command: Record) -> TypeGuard[CloseSession]:
    return isinstance(command, CloseSession) and command.idempotency_key is not None


def test_a_golden_record_is_one_place_of_the_log(log: GoldenLog) -> None:
    for records in log.values():
        places = [(record.partition, record.offset) for record in records]
        assert places == sorted(set(places))
        assert all(isinstance(record, GoldenRecord) for record in records)
