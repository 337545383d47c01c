"""The rollout worker with the scripted engine on a real broker."""

import logging
from pathlib import Path

import orjson
import pytest
import xxhash

from seamlessflow.demo.task import LOOKUP
from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.rendering.settings import RendererSettings
from seamlessflow.schemas import records as r
from seamlessflow.schemas.tokens import unpack
from seamlessflow.schemas.topics import CONTROL, PROMPTS
from tests.builders.records import control
from tests.builders.records.prompts import cancel
from tests.builders.rollout.rollout_system import (
    RolloutSystem,
)

pytestmark = pytest.mark.kafka

AT_ONCE = {"text": "code 3", "tokens": 12}
CALL = (
    '<think>\n\n</think>\n\n<tool_call>\n{"name": "lookup", "arguments": {"key": 3}}\n</tool_call>'
)
SLOWLY = {"text": "code 3", "tokens": 400, "tokens_per_second": 200}


def test_a_turn_is_sampled_parsed_and_written_with_its_trace(
    system: RolloutSystem, tokenizer: Path
) -> None:
    role = system.serve_scripted("one", 1, AT_ONCE)
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
    role = system.serve_scripted("streams", 2, SLOWLY | {"tokens": 60})
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
    role = system.serve_scripted("ignores", 3, AT_ONCE)
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
    role = system.serve_scripted("cancels", 4, SLOWLY)
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
    role = system.serve_scripted("shares", 6, SLOWLY)
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
    role = system.serve_scripted("updates", 7, SLOWLY)
    system.generate(role, "t-updated", stream=True)
    system.progressed("t-updated", 10)
    system.publish_unread("updates", 1)
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


def test_a_raw_turn_is_answered_by_its_text(system: RolloutSystem, tokenizer: Path) -> None:
    role = system.serve_scripted("raw", 13, {"text": " <think> 3\n", "tokens": 20})
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
    role = system.serve_scripted("forced", 14, {"text": rest, "tokens": tokens})
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
