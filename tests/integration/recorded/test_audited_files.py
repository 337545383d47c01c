"""The check of `trained/` against a real log: events through the fold, the trainer's own files."""

import gzip
import uuid
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from seamlessflow.consumers.trajectories.sessions.assemble import trajectory
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.kafka.topics.partitions import partition_of
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.audit.verify import verify
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import CONTROL, SESSIONS
from seamlessflow.trainer.data.chains import chains
from seamlessflow.trainer.data.packing import pack
from seamlessflow.trainer.steps.trained import Header, TrainedRun, write_trained
from tests.builders.auditing.trained_files import read_trained
from tests.builders.own_topics import SMALL, small
from tests.builders.records import control, sessions
from tests.builders.records.content import ids
from tests.builders.trajectories.session_builder import SessionBuilder

SESSION_IDS = [f"run-{number // 2}.{number % 2}.0" for number in range(8)]
STEPS = 2
COMPLETION = [3, 5, 6, 7]
"""Tokens of every turn: two tokens, then the rest elsewhere under a newer version."""

OUSTED = "x"
"""The worker that a manager chose which did not own the session any more."""

LATE = [8, 9]
"""Tokens that the first worker sampled behind the two when the turn was no longer its own."""


def logprobs(tokens: list[int], session: str) -> bytes:
    """Return log-probs that differ for each session and token, and are no round numbers."""
    seed = SESSION_IDS.index(session)
    return np.array([-np.log(1 + token + seed) for token in tokens], "<f4").tobytes()


def events(session: str) -> list[Record]:
    """Return a turn that another worker continues, with late output and an older manager."""
    lost: dict[str, Any] = {"session_id": session, "epoch": 2 * SESSION_IDS.index(session)}
    now: dict[str, Any] = {"session_id": session, "epoch": lost["epoch"] + 1}
    partition = partition_of(session, SMALL[SESSIONS.name].partitions)
    second: dict[str, Any] = {"dispatch": 2, "worker": "v", "incarnation": "j"}
    return [
        sessions.opened(**lost),
        sessions.started(**lost),
        sessions.dispatched(**lost),
        sampled(sessions.progressed, session, COMPLETION[:2], version=0),
        sessions.claimed(now["epoch"], partition=partition),
        sessions.dispatched(dispatch=2, from_offset=2, worker=OUSTED, **lost),
        sessions.dispatched(from_offset=2, **second, **now),
        sampled(sessions.completed, session, LATE, version=0, token_offset=2),
        sampled(sessions.completed, session, COMPLETION[2:], version=1, token_offset=2, **second),
        sessions.rewarded(**now),
        sessions.closed(**now),
        sessions.finalized(**now),
    ]


def sampled(
    make: Callable[..., Record], session: str, tokens: list[int], version: int, **more: Any
) -> Record:
    start = more.get("token_offset", 0)
    span = r.VersionSpan(start=start, version_min=version, version_max=version)
    output = {"logprobs": logprobs(tokens, session), "spans": (span,), **more}
    return make(ids(*tokens), session_id=session, **output)


@pytest.fixture(scope="module")
def log(broker: KafkaSettings) -> KafkaSettings:
    """Return a log with the events of all sessions and the steps that trained on them."""
    kafka = broker.model_copy(update={"topic_prefix": f"test-{uuid.uuid4().hex[:12]}."})
    create_topics(kafka, small(CONTROL, SESSIONS))
    producer = Producer(kafka, "test-log")
    for session in SESSION_IDS:
        for event in events(session):
            partition = partition_of(session, SMALL[SESSIONS.name].partitions)
            producer.send(SESSIONS.name, event, key=session, partition=partition)
    for step in range(STEPS):
        producer.send(CONTROL.name, control.committed(step, lineage="l"))
    producer.close()
    return kafka


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """Write the trainer's files for half of the sessions in each step; return their directory."""
    for step in range(STEPS):
        half = SESSION_IDS[step::STEPS]
        step_chains = [chain for session in half for chain in chains(built(session), "p").chains]
        batches = pack(step_chains, 64, "padded")
        tokens = sum(len(batch) for batch in batches)
        header = Header(step=step, version=step + 1, lineage="l", policy="p", tokens=tokens)
        write_trained(tmp_path, header, [(step_chains, batches)])
    return tmp_path


def built(session: str) -> r.Trajectory:
    """Return the trajectory as the manager builds it, from the events that count."""
    heard = [event for event in events(session) if getattr(event, "worker", "") != OUSTED]
    built = SessionBuilder().apply(
        *(event for event in heard if not isinstance(event, r.PartitionClaimed))
    )
    return trajectory(built.session, 0)


def change(directory: Path, step: int, altered: Callable[[TrainedRun], TrainedRun]) -> None:
    """Change the first line of a step's file."""
    [path] = directory.glob(f"step-{step:08d}-*")
    header, [first, *rest] = read_trained(path)
    lines = [asdict(header), *(asdict(run) for run in (altered(first), *rest))]
    path.write_bytes(gzip.compress(b"\n".join(map(orjson.dumps, lines))))


def test_what_was_sampled_was_trained(log: KafkaSettings, trained: Path) -> None:
    report = verify(log, trained, Skipped())

    assert report.clean
    assert report.tokens_checked == len(SESSION_IDS) * len(COMPLETION)


def test_another_id_is_found(log: KafkaSettings, trained: Path) -> None:
    change(trained, 0, lambda run: replace(run, ids=[*run.ids[:-1], run.ids[-1] ^ 1]))

    report = verify(log, trained, Skipped())

    assert (report.mismatches, report.trained_twice) == (1, 0)
    assert (report.deviations[0].session, report.deviations[0].offset) == (SESSION_IDS[0], 3)


def test_the_neighbouring_log_prob_is_found(log: KafkaSettings, trained: Path) -> None:
    def altered(run: TrainedRun) -> TrainedRun:
        next_one = np.nextafter(np.float32(run.logprobs[0]), np.float32(0))
        return replace(run, logprobs=[float(next_one), *run.logprobs[1:]])

    change(trained, 1, altered)

    assert verify(log, trained, Skipped()).mismatches == 1


def test_another_version_is_found(log: KafkaSettings, trained: Path) -> None:
    change(trained, 0, lambda run: replace(run, versions=[0, 0, 0, 1]))

    assert verify(log, trained, Skipped()).mismatches == 1


def test_a_token_trained_twice_is_found(log: KafkaSettings, trained: Path) -> None:
    path = sorted(trained.iterdir())[0]
    _, [theirs, *_] = read_trained(path)
    change(trained, 1, lambda _: theirs)

    report = verify(log, trained, Skipped())

    assert (report.mismatches, report.trained_twice) == (0, len(COMPLETION))
    assert "in steps 1, 2" in str(report.deviations[0])


def test_tokens_of_a_dispatch_that_had_been_replaced_are_found(
    log: KafkaSettings, trained: Path
) -> None:
    def altered(run: TrainedRun) -> TrainedRun:
        late = np.frombuffer(logprobs(LATE, run.session), "<f4").tolist()
        return replace(
            run,
            ids=[*run.ids[:2], *LATE],
            logprobs=[*run.logprobs[:2], *late],
            versions=[0, 0, 0, 0],
        )

    change(trained, 0, altered)

    assert verify(log, trained, Skipped()).mismatches == len(LATE)


def test_a_step_whose_file_is_gone_is_missed(log: KafkaSettings, trained: Path) -> None:
    sorted(trained.iterdir())[1].unlink()

    assert verify(log, trained, Skipped()).steps_missing == (1,)
