"""Logs of earlier releases give today what they gave then, byte for byte."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, TypeGuard

import pytest
from fastavro import schemaless_writer

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
from seamlessflow.schemas.registry import history, parsed
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
    found: dict[int, list[Record]] = {}
    for record in log[SESSIONS.name]:
        events = found.setdefault(record.partition, [])
        assert record.offset == len(events)
        events.append(decode(record.value))
    return found


def policies(log: GoldenLog) -> Policies:
    weights = [decode(record.value) for record in log[FLEET.name]]
    known = {one.policy: one.strictness for one in weights if isinstance(one, PolicyWeights)}
    return lambda policy: known[policy]  # type: ignore[return-value]


def events_of(log: GoldenLog) -> list[Record]:
    return [decode(record.value) for record in log[SESSIONS.name]]


def golden(log: GoldenLog) -> dict[str, bytes]:
    """Return the trajectories of that time, as they were written, by session."""
    made = [(decode(record.value), record.value) for record in log[TRAJECTORIES.name]]
    return {one.session_id: value for one, value in made if isinstance(one, Trajectory)}


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
    return parsed(history()["Trajectory"][version])


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
    for one in made:
        assert_same(one, before[one.session_id])


def test_an_old_log_gives_the_same_bytes_wherever_a_takeover_reads_from(log: GoldenLog) -> None:
    """Holds invariant I7."""
    before, strictness = golden(log), policies(log)
    for number, events in partitions(log).items():
        for cut in range(len(events) + 1):
            early = Replay(number, PartitionProgress(), strictness)
            made = early.read(events, 0, cut)
            _, progress = early.partition.committable()
            late = Replay(number, PartitionProgress.decode(progress.encode()), strictness)
            ended = {one.session_id for one in made}
            again = late.read(events, progress.rebuild, len(events))
            made += [one for one in again if one.session_id not in ended]

            for one in made:
                assert_same(one, before[one.session_id])
            opened = {event.session_id for event in events if isinstance(event, SessionOpened)}
            assert {one.session_id for one in made} == opened


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

    trajectories = [one for one in made if isinstance(one, Trajectory)]
    reasons = {reason for one in trajectories for reason in one.masked_tokens}
    rules = {rule for one in trajectories for rule in one.match_rules}
    assert events >= set(SESSIONS.records)
    assert rules == {"root", "render", "extend", "same"}
    assert reasons >= REASONS
    assert {one.limit for one in trajectories} >= LIMITS
    assert any(one.interrupted_turns for one in trajectories)
    assert any(one.version_min != one.version_max for one in trajectories)
    assert any(sum(one.ignored_events.values()) for one in trajectories)


def test_the_logs_have_calls_that_need_rules_of_their_own(log: GoldenLog) -> None:
    turns = [one for one in events_of(log) if isinstance(one, TurnStarted)]
    commands = [decode(record.value) for record in log[REQUESTS.name]]
    closes = [(one.session_id, one.idempotency_key) for one in commands if _keyed_close(one)]

    assert any(turn.siblings == "all" for turn in turns)
    assert any(turn.prefill for turn in turns)
    assert len(closes) > len(set(closes))


def _keyed_close(command: Record) -> TypeGuard[CloseSession]:
    return isinstance(command, CloseSession) and command.idempotency_key is not None


def test_a_golden_record_is_one_place_of_the_log(log: GoldenLog) -> None:
    for records in log.values():
        places = [(one.partition, one.offset) for one in records]
        assert places == sorted(set(places))
        assert all(isinstance(one, GoldenRecord) for one in records)
