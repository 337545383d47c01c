"""The rollout worker with the scripted engine on a real broker."""

import logging
import signal
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
import xxhash

from infra.clock import now_ms
from infra.rendering.renderer import Renderer
from infra.rendering.settings import RendererSettings
from infra.settings import KafkaSettings
from producers.rollout.engine.contract import Engine
from producers.rollout.probe.answers import EngineProbeFailed
from producers.rollout.process import EngineBroke
from producers.rollout.roles.moves import PublishedWeights
from producers.rollout.scripted_engine.engine import ScriptedEngine
from producers.rollout.scripted_engine.script import Script
from producers.rollout.turns.message_parser import MessageParser
from schemas import records as r
from schemas.tokens import pack, unpack
from schemas.topics import CONTROL, PROMPTS
from seamlessflow.demo.task import LOOKUP
from seamlessflow.demo.tokenizer import make_tokenizer
from tests.builders.engines.broken import Altered, of_another_version
from tests.builders.records import control
from tests.builders.records.prompts import cancel
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


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer(directory)
    return directory


@pytest.fixture(scope="module")
def system(broker: KafkaSettings, tokenizer: Path) -> Iterator[RolloutSystem]:
    with rollout_system(broker, tokenizer) as made:
        yield made


def scripted(
    system: RolloutSystem, name: str, slot: int, script: dict[str, object]
) -> r.RoleAcquired:
    """Start a worker with a script; return its role."""
    publish(system, name, 0)
    system.start(name, f"policy-{name}", engine="scripted", scripted=script)
    return system.serve(name, slot)


def publish(system: RolloutSystem, name: str, version: int) -> None:
    system.publish(f"policy-{name}", version, Path("nowhere"), "none")


def test_a_turn_is_sampled_parsed_and_written_with_its_trace(
    system: RolloutSystem, tokenizer: Path
) -> None:
    role = scripted(system, "one", 1, AT_ONCE)
    trace = [("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")]
    asked = system.generate(role, "t-one", headers=trace)
    done = system.completed("t-one")
    renderer = Renderer.load(tokenizer, RendererSettings("qwen3"))
    message = orjson.loads(done.message)
    assert message == {"role": "assistant", "content": message["content"]}
    assert renderer.decode(done.token_ids[:-4]) == message["content"]
    assert done.finish_reason == "stop"
    assert done.prompt_hash == xxhash.xxh3_128_digest(asked.prompt_ids)
    assert (done.worker, done.incarnation, done.dispatch) == ("one", role.incarnation, 1)
    (place,) = [item for item in system.log if item.record == done]
    assert (place.key, list(place.headers)) == ("session-t-one", trace)
    assert role.policy == asked.policy


def test_a_streamed_turn_comes_in_pieces_that_are_the_message(system: RolloutSystem) -> None:
    role = scripted(system, "streams", 2, SLOWLY | {"tokens": 60})
    system.generate(role, "t-streams", stream=True)
    done = system.completed("t-streams")
    pieces = [record for record in system.outputs("t-streams") if record != done]
    assert len(pieces) >= 2
    deltas, offset = [], 0
    for piece in [*pieces, done]:
        assert isinstance(piece, r.TurnProgressed | r.TurnCompleted)
        assert piece.token_offset == offset
        offset += len(piece.token_ids) // 4
        deltas.append(orjson.loads(piece.delta)["content"] if piece.delta else "")
    assert offset == 61
    assert "".join(deltas) == orjson.loads(done.message)["content"]


def test_what_is_not_meant_for_it_is_ignored(system: RolloutSystem) -> None:
    role = scripted(system, "ignores", 3, AT_ONCE)
    system.generate(role, "t-newest", epoch=4)
    system.generate(role, "t-other-worker", worker="another")
    system.generate(role, "t-earlier-incarnation", incarnation="an earlier one")
    system.generate(role, "t-former-owner", epoch=3)
    system.generate(role, "t-newest", epoch=4)
    system.generate(role, "t-late", epoch=4, deadline_ms=now_ms())
    system.generate(role, "t-last", epoch=4)
    system.completed("t-last")
    for ignored in ("t-other-worker", "t-earlier-incarnation", "t-former-owner"):
        assert system.outputs(ignored) == []
    assert len(system.outputs("t-newest")) == 1
    late = system.wait(r.TurnFailed, lambda failed: failed.turn_id == "t-late")
    assert (late.reason, late.status) == ("deadline", 504)


def test_a_cancelled_turn_hands_its_tokens_back(system: RolloutSystem) -> None:
    role = scripted(system, "cancels", 4, SLOWLY)
    asked = system.generate(role, "t-cancelled", stream=True)
    system.progressed("t-cancelled", 1)
    asked_to_stop = cancel(
        session_id=asked.session_id,
        turn_id=asked.turn_id,
        worker=role.worker,
        incarnation=role.incarnation,
    )
    system.producer.send(PROMPTS.name, asked_to_stop, partition=role.slot)
    assert system.interrupted("t-cancelled").reason == "cancelled"


def test_the_device_goes_to_the_trainer_and_comes_back(
    system: RolloutSystem, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    role = scripted(system, "shares", 6, SLOWLY)
    system.generate(role, "t-preempted", stream=True)
    system.progressed("t-preempted", 1)
    assignment = system.assign("shares", "train")
    released = system.wait(r.RoleReleased, lambda gone: gone.worker == "shares")
    assert (released.role, released.assignment, released.handed_back) == ("rollout", assignment, 1)
    assert system.interrupted("t-preempted").reason == "preempted"
    assert "worker shares (" in caplog.text
    assert "policy-shares version 0, slot 6" in caplog.text
    assert "role rollout released" in caplog.text
    system.generate(role, "t-too-late")
    assert system.interrupted("t-too-late").token_ids == b""

    trainer = control.acquired("shares", "train", assignment, incarnation="trainer", at_ms=now_ms())
    system.producer.send(CONTROL.name, trainer, partition=0)
    back = system.assign("shares", "rollout", 6)
    freed = control.released("shares", "train", back, incarnation="trainer", at_ms=now_ms())
    system.producer.send(CONTROL.name, freed, partition=0)
    again = system.wait(r.RoleAcquired, lambda got: got.assignment == back)
    roles = [
        (type(item.record).__name__, item.record.role)
        for item in system.log
        if isinstance(item.record, r.RoleAcquired | r.RoleReleased)
        and item.record.worker == "shares"
    ]
    assert roles[-2:] == [("RoleReleased", "train"), ("RoleAcquired", "rollout")]
    system.generate(again, "t-again", sampling=r.Sampling(max_tokens=3))
    system.completed("t-again")


def test_new_weights_in_the_middle_of_a_turn_show_in_its_version_spans(
    system: RolloutSystem,
) -> None:
    role = scripted(system, "updates", 7, SLOWLY)
    system.generate(role, "t-updated", stream=True)
    system.progressed("t-updated", 10)
    publish(system, "updates", 1)
    system.wait(r.GenerationResumed, lambda resumed: resumed.worker == "updates")
    system.completed("t-updated")
    versions = [
        (span.start, span.version_min)
        for record in system.outputs("t-updated")
        if isinstance(record, r.TurnProgressed | r.TurnCompleted)
        for span in record.spans
    ]
    assert versions == sorted(versions)
    assert {version for _, version in versions} == {0, 1}
    said = [
        type(item.record).__name__
        for item in system.log
        if getattr(item.record, "worker", "") == "updates" and item.topic == CONTROL.name
    ]
    order = ["GenerationPaused", "WeightsLoaded", "GenerationResumed"]
    assert [name for name in said if name in order] == order


def test_a_worker_that_was_given_up_joins_as_a_new_incarnation(system: RolloutSystem) -> None:
    role = scripted(system, "returns", 8, SLOWLY)
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

    def verify(self, weights: PublishedWeights) -> None:
        pass

    def build(self, weights: PublishedWeights, parser: MessageParser) -> Engine:
        return ScriptedEngine(Script(pack([65]), 400, tokens_per_second=400.0, breaks_at=20))


def test_a_broken_engine_hands_its_turns_back_and_ends_the_process(system: RolloutSystem) -> None:
    publish(system, "breaks", 0)
    worker = system.start("breaks", "policy-breaks", Breaking())
    role = system.serve("breaks", 9)
    system.generate(role, "t-broken", stream=True)
    assert system.interrupted("t-broken").reason == "engine_failed"
    worker.join()
    assert isinstance(worker.error, EngineBroke)
    assert "ArithmeticError" in str(worker.error)
    system.wait(r.WorkerHeartbeat, lambda beat: (beat.worker, beat.state) == ("breaks", "failed"))


class Untrue:
    """Engines that sample under another version than was loaded."""

    def verify(self, weights: PublishedWeights) -> None:
        pass

    def build(self, weights: PublishedWeights, parser: MessageParser) -> Engine:
        return Altered(ScriptedEngine(Script(pack([65]), 400)), of_another_version)


def test_an_engine_that_fails_its_probe_never_gets_the_role(system: RolloutSystem) -> None:
    publish(system, "untrue", 0)
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


def test_a_raw_turn_is_answered_by_its_text(system: RolloutSystem, tokenizer: Path) -> None:
    role = scripted(system, "raw", 13, {"text": " <think> 3\n", "tokens": 20})
    system.generate(role, "t-raw", raw=True, stream=True)
    done = system.completed("t-raw")
    renderer = Renderer.load(tokenizer, RendererSettings("qwen3"))
    text = renderer.decode(done.token_ids[:-4])
    assert orjson.loads(done.message) == {"role": "assistant", "content": text}
    assert text.startswith(" <think> 3\n <think>")


def test_a_forced_call_is_one_message_with_its_beginning(
    system: RolloutSystem, tokenizer: Path
) -> None:
    renderer = Renderer.load(tokenizer, RendererSettings("qwen3"))
    messages = [{"role": "user", "content": "3?"}]
    prompt = renderer.render(messages, [LOOKUP])
    beginning = renderer.forced_call(prompt, messages, [LOOKUP], "lookup")
    rest = CALL[len(renderer.decode(beginning)) :]
    tokens = len(renderer.encode(rest)) // 4
    role = scripted(system, "forced", 14, {"text": rest, "tokens": tokens})
    forced = unpack(beginning)
    system.generate(
        role,
        "t-forced",
        [*unpack(prompt), *forced],
        prefill=len(forced),
        tools=orjson.dumps([LOOKUP]),
    )
    done = system.completed("t-forced")
    assert done.finish_reason == "tool_calls"
    assert renderer.decode(done.token_ids[:-4]) == rest
    assert done.prompt_length == len(prompt) // 4 + len(forced)
    (call,) = orjson.loads(done.message)["tool_calls"]
    assert call["function"] == {"name": "lookup", "arguments": '{"key": 3}'}


def test_a_record_that_is_lost_ends_its_dispatch_and_nothing_else(
    broker: KafkaSettings, tokenizer: Path
) -> None:
    with rollout_system(broker, tokenizer, max_record_bytes=2_000) as small:
        role = scripted(small, "loses", 1, {"text": "code 3", "tokens": 1_000})
        large = r.Sampling(max_tokens=500)
        small.generate(role, "t-large", sampling=large, partition=OTHER_PARTITION)
        small.generate(role, "t-small", sampling=r.Sampling(max_tokens=5))
        small.completed("t-small")
        assert small.outputs("t-large") == []


def test_the_process_killed_leaves_whole_records_and_a_successor_goes_on(
    system: RolloutSystem,
) -> None:
    publish(system, "dies", 0)
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
    publish(system, "ends", 0)
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
