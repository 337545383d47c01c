"""Failures of a rollout worker: engines that break, lost records, killed and ended processes."""

import signal
import threading
from pathlib import Path

import orjson
import pytest

from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.weights.versions import PublishedWeights
from seamlessflow.infra.worker.roles import ENDED
from seamlessflow.producers.rollout.engine.contract import Engine
from seamlessflow.producers.rollout.probe.answers import EngineProbeFailed
from seamlessflow.producers.rollout.process import EngineBroke
from seamlessflow.producers.rollout.scripted_engine import Script, ScriptedEngine
from seamlessflow.producers.rollout.turns.message import MessageParser
from seamlessflow.schemas import records as r
from seamlessflow.schemas.tokens import pack
from seamlessflow.schemas.topics import CONTROL
from tests.builders.engines.broken import Altered, BreakingScript, of_another_version
from tests.builders.records import control
from tests.builders.rollout.rollout_system import (
    DEADLINE_S,
    OTHER_PARTITION,
    RolloutSystem,
    rollout_system,
)

pytestmark = pytest.mark.kafka

AT_ONCE = {"text": "code 3", "tokens": 12}
CALL = (
    '<think>\n\n</think>\n\n<tool_call>\n{"name": "lookup", "arguments": {"key": 3}}\n</tool_call>'
)
SLOWLY = {"text": "code 3", "tokens": 400, "tokens_per_second": 200}


def test_a_worker_that_was_given_up_joins_as_a_new_incarnation(system: RolloutSystem) -> None:
    role = system.serve_scripted("returns", 8, SLOWLY)
    system.generate(role, "t-lost", stream=True)
    system.progressed("t-lost", 1)
    lost = control.lost("returns", incarnation=role.incarnation, at_ms=now_ms())
    system.producer.send(CONTROL.name, lost, partition=0)
    incarnation = system.incarnation("returns", other_than=role.incarnation)
    again = system.serve("returns", 8, incarnation)
    assert again.incarnation == incarnation
    system.generate(again, "t-returned", sampling=r.Sampling(max_tokens=3))
    assert system.completed("t-returned").incarnation == incarnation


class Breaking:
    """Engines that break at the twentieth token."""

    whole_vocabulary = True
    loads_asleep = True

    def verify(self, weights: PublishedWeights) -> None:
        pass

    def build(self, weights: PublishedWeights, parser: MessageParser) -> Engine:
        return ScriptedEngine(
            BreakingScript(pack([65]), 400, tokens_per_second=400.0, breaks_at=20)
        )


def test_a_broken_engine_hands_its_turns_back_and_ends_the_process(system: RolloutSystem) -> None:
    system.publish_unread("breaks", 0)
    worker = system.start("breaks", "policy-breaks", Breaking())
    role = system.serve("breaks", 9)
    system.generate(role, "t-broken", stream=True)
    assert system.interrupted("t-broken").reason == "engine_failed"
    worker.join()
    assert isinstance(worker.error, EngineBroke)
    assert "ArithmeticError" in str(worker.error)
    system.wait(r.WorkerHeartbeat, lambda beat: (beat.worker, beat.state) == ("breaks", "failed"))


class Building:
    """Engines whose building takes until the test ends."""

    whole_vocabulary = True
    loads_asleep = True

    def __init__(self) -> None:
        self.begun, self.over = threading.Event(), threading.Event()

    def verify(self, weights: PublishedWeights) -> None:
        pass

    def build(self, weights: PublishedWeights, parser: MessageParser) -> Engine:
        self.begun.set()
        self.over.wait()
        return ScriptedEngine(Script(pack([65]), 400))


def test_an_end_does_not_wait_for_an_engine_that_is_being_built(system: RolloutSystem) -> None:
    system.publish_unread("builds", 0)
    engines = Building()
    worker = system.start("builds", "policy-builds", engines)
    system.assign("builds", "rollout", 13)
    assert engines.begun.wait(DEADLINE_S)
    try:
        worker.stop()
    finally:
        engines.over.set()
    assert worker.error is None
    system.wait(r.WorkerHeartbeat, lambda beat: (beat.worker, beat.state) == ("builds", ENDED))


class Untrue:
    """Engines that sample under another version than was loaded."""

    whole_vocabulary = True
    loads_asleep = True

    def verify(self, weights: PublishedWeights) -> None:
        pass

    def build(self, weights: PublishedWeights, parser: MessageParser) -> Engine:
        return Altered(ScriptedEngine(Script(pack([65]), 400)), of_another_version)


def test_an_engine_that_fails_its_probe_never_gets_the_role(system: RolloutSystem) -> None:
    system.publish_unread("untrue", 0)
    worker = system.start("untrue", "policy-untrue", Untrue())
    system.assign("untrue", "rollout", 12)
    worker.join()
    assert isinstance(worker.error, EngineProbeFailed)
    assert (worker.error.field, worker.error.expected, worker.error.got) == ("version", 0, 9)
    system.wait(r.WorkerHeartbeat, lambda beat: (beat.worker, beat.state) == ("untrue", "failed"))
    assert not any(
        isinstance(item.record, r.RoleAcquired) and item.record.worker == "untrue"
        for item in system.log
    )


def test_a_record_that_is_lost_ends_its_dispatch_and_nothing_else(
    broker: KafkaSettings, tokenizer: Path
) -> None:
    with rollout_system(broker, tokenizer, max_record_bytes=2_000) as small:
        role = small.serve_scripted("loses", 1, {"text": "code 3", "tokens": 1_000})
        large = r.Sampling(max_tokens=500)
        small.generate(role, "t-large", sampling=large, partition=OTHER_PARTITION)
        small.generate(role, "t-small", sampling=r.Sampling(max_tokens=5))
        small.completed("t-small")
        assert small.outputs("t-large") == []


def test_the_process_killed_leaves_whole_records_and_a_successor_goes_on(
    system: RolloutSystem,
) -> None:
    system.publish_unread("dies", 0)
    script = orjson.dumps(SLOWLY).decode()
    process = system.start_process("dies", "policy-dies", engine="scripted", scripted=script)
    role = system.serve("dies", 10)
    system.generate(role, "t-orphan", stream=True)
    system.progressed("t-orphan", 20)
    process.kill()
    process.wait(DEADLINE_S)

    system.start("dies", "policy-dies", engine="scripted", scripted=SLOWLY)
    incarnation = system.incarnation("dies", other_than=role.incarnation)
    again = system.serve("dies", 10, incarnation)
    written = system.outputs("t-orphan")
    ids = b""
    for record in written:
        assert isinstance(record, r.TurnProgressed)
        assert record.token_offset == len(ids) // 4
        ids += record.token_ids
    system.generate(again, "t-orphan", dispatch=2, completion_ids=ids)
    done = system.completed("t-orphan")
    assert (done.dispatch, done.token_offset) == (2, len(ids) // 4)


def test_the_process_asked_to_end_hands_its_turns_back(system: RolloutSystem) -> None:
    system.publish_unread("ends", 0)
    script = orjson.dumps(SLOWLY).decode()
    process = system.start_process("ends", "policy-ends", engine="scripted", scripted=script)
    role = system.serve("ends", 11)
    system.generate(role, "t-shutdown", stream=True)
    system.progressed("t-shutdown", 1)
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE_S) == 0
    assert system.interrupted("t-shutdown").reason == "shutdown"
    released = system.wait(r.RoleReleased, lambda gone: gone.worker == "ends")
    assert released.handed_back == 1
    last = system.wait(r.WorkerHeartbeat, lambda beat: (beat.worker, beat.state) == ("ends", ENDED))
    assert (last.role, last.running) == ("none", 0)
