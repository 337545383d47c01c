"""Records of a slot in, requests to the engine and records of `sessions` out."""

from typing import Any

import pytest

from seamlessflow.infra.errors import DeliveryFailed
from seamlessflow.producers.rollout.engine.errors import (
    EngineStateInvalid,
    PromptTooLong,
    RequestInvalid,
    no_structured_output,
)
from seamlessflow.producers.rollout.turns.serving import SCAN_MS
from seamlessflow.schemas.records import (
    Sampling,
    TurnCompleted,
    TurnFailed,
    TurnInterrupted,
    TurnProgressed,
)
from seamlessflow.schemas.tokens import pack
from tests.builders.records.prompts import cancel, generate
from tests.builders.rollout.completions import chunk, codes
from tests.builders.rollout.serving_setup import NOW, TRACE, ServingSetup


@pytest.fixture
def setup() -> ServingSetup:
    return ServingSetup().serve()


def test_a_turn_goes_to_the_engine_as_it_was_asked(setup: ServingSetup) -> None:
    setup.send(generate(completion_ids=pack(codes("ab")), sampling=Sampling(max_tokens=9)))
    asked = setup.engine.submitted["turn/1"]
    assert (asked.prompt, asked.completion) == ([1, 2, 3], codes("ab"))
    assert (asked.sampling.max_tokens, asked.sampling.stop_token_ids) == (9, (0,))


def test_the_engine_gets_the_whole_prompt_and_the_reader_what_stands_before_the_answer(
    setup: ServingSetup,
) -> None:
    setup.send(generate(prefill=2))
    assert setup.engine.submitted["turn/1"].prompt == [1, 2, 3]
    assert setup.parser.prompts == [pack([1])]


def test_a_raw_prompt_has_no_template_to_read_its_answer_by(setup: ServingSetup) -> None:
    setup.send(generate(raw=True, sampling=Sampling(max_tokens=9, stop=("END",))))
    setup.sample(" a \nEND", "stop")
    (record,) = setup.written
    assert isinstance(record, TurnCompleted)
    assert record.message == b'{"content":" a \\n","role":"assistant"}'
    assert setup.parser.prompts == []


def test_the_engine_is_asked_for_the_most_likely_tokens_and_for_a_schema(
    setup: ServingSetup,
) -> None:
    setup.send(generate(sampling=Sampling(max_tokens=9, top_logprobs=5, json_schema="{}")))
    sampling = setup.engine.submitted["turn/1"].sampling
    assert (sampling.top_logprobs, sampling.json_schema) == (5, "{}")


def test_what_the_engine_samples_goes_to_the_sessions_partition_with_its_trace(
    setup: ServingSetup,
) -> None:
    setup.send(generate())
    setup.sample("hi", "stop")
    (record,) = setup.written
    assert isinstance(record, TurnCompleted)
    assert setup.places == [(5, TRACE)]
    assert not setup.serving.running
    assert setup.engine.calls == []
    assert setup.serving.tokens == 2


def test_tokens_that_nothing_depends_on_wake_nobody(setup: ServingSetup) -> None:
    setup.send(generate())
    setup.engine.submitted["turn/1"].on_chunk(chunk(0, codes("a")))
    assert setup.woken == []
    setup.serving.advance_due(NOW + 1_999)
    assert setup.written == []
    setup.serving.advance_due(NOW + 2_000)
    assert isinstance(setup.written[0], TurnProgressed)


def test_the_first_token_of_a_streamed_turn_wakes_the_loop_later_ones_do_not(
    setup: ServingSetup,
) -> None:
    setup.send(generate(stream=True))
    setup.sample("a")
    assert isinstance(setup.written[0], TurnProgressed)
    setup.engine.submitted["turn/1"].on_chunk(chunk(1, codes("b")))
    assert setup.woken == []
    setup.serving.advance_due(NOW + 100)
    assert len(setup.written) == 2


def test_due_turns_are_looked_at_together(setup: ServingSetup) -> None:
    setup.send(generate(turn_id="a", stream=True))
    setup.send(generate(turn_id="b", stream=True), NOW + 5)
    assert setup.serving.due_ms == NOW + 100
    setup.serving.advance_due(NOW + 100)
    assert setup.serving.due_ms == NOW + 100 + SCAN_MS


def test_a_repeat_of_a_running_dispatch_changes_nothing(setup: ServingSetup) -> None:
    setup.send(generate())
    setup.send(generate())
    assert setup.engine.calls == []
    assert len(setup.engine.submitted) == 1


def test_a_later_dispatch_replaces_the_running_one_in_silence(setup: ServingSetup) -> None:
    setup.send(generate())
    setup.send(generate(dispatch=2, completion_ids=pack(codes("a"))))
    assert setup.engine.calls == [("abort", "turn/1")]
    setup.sample("x", "abort")
    assert setup.written == []
    setup.sample("b", "stop", "turn/2")
    (record,) = setup.written
    assert record.dispatch == 2


def test_a_cancelled_turn_is_aborted_and_hands_its_tokens_back(setup: ServingSetup) -> None:
    setup.send(generate())
    setup.sample("ab")
    setup.send(cancel())
    (record,) = setup.written
    assert isinstance(record, TurnInterrupted)
    assert (record.reason, len(record.token_ids)) == ("cancelled", 8)
    assert setup.engine.calls == [("abort", "turn/1")]
    setup.sample("", "abort")
    assert len(setup.written) == 1


def test_leaving_hands_every_turn_back_and_those_that_come_after(setup: ServingSetup) -> None:
    setup.send(generate(turn_id="a"))
    setup.send(generate(turn_id="b"))
    setup.sample("ab", None, "a/1")
    assert setup.serving.leave("preempted", NOW) == 2
    setup.send(generate(turn_id="c", completion_ids=pack([1])))
    assert [type(record) for record in setup.written] == [TurnInterrupted] * 3
    assert [record.turn_id for record in setup.written] == ["a", "b", "c"]
    reasons = {record.reason for record in setup.written if isinstance(record, TurnInterrupted)}
    assert reasons == {"preempted"}


def test_a_turn_that_just_ended_is_not_counted_as_handed_back(setup: ServingSetup) -> None:
    setup.send(generate())
    setup.engine.submitted["turn/1"].on_chunk(chunk(0, codes("a"), "stop"))
    assert setup.serving.leave("preempted", NOW) == 0
    assert isinstance(setup.written[0], TurnCompleted)


def test_a_turn_past_its_deadline_is_not_started(setup: ServingSetup) -> None:
    setup.send(generate(deadline_ms=NOW))
    (record,) = setup.written
    assert isinstance(record, TurnFailed)
    assert record.reason == "deadline"
    assert setup.engine.submitted == {}


def test_a_deadline_ends_a_running_turn(setup: ServingSetup) -> None:
    setup.send(generate(deadline_ms=NOW + 500))
    setup.serving.advance_due(NOW + 500)
    (record,) = setup.written
    assert isinstance(record, TurnFailed)
    assert setup.engine.calls == [("abort", "turn/1")]


@pytest.mark.parametrize(
    ("error", "reason", "cause"),
    [
        (PromptTooLong("turn/1", 60, 40), "prompt_too_long", "policy"),
        (RequestInvalid("turn/1", "token 9999"), "bad_request", "environment"),
        (no_structured_output("turn/1"), "unsupported_value", "environment"),
    ],
)
def test_what_the_engine_refuses_fails(
    setup: ServingSetup, error: Exception, reason: str, cause: str
) -> None:
    setup.engine.refusal = error
    setup.send(generate())
    (record,) = setup.written
    assert isinstance(record, TurnFailed)
    assert (record.status, record.reason, record.cause) == (400, reason, cause)
    assert "turn/1" not in record.detail
    assert not setup.serving.running


@pytest.mark.parametrize(
    "changes", [{"sampling": Sampling(temperature=-1.0)}, {"tools": b"no json"}]
)
def test_what_cannot_be_read_fails_and_ends_nothing_else(
    setup: ServingSetup, changes: dict[str, Any]
) -> None:
    setup.send(generate(**changes))
    (record,) = setup.written
    assert isinstance(record, TurnFailed)
    assert record.reason == "bad_request"


def test_a_broken_engine_hands_turns_back_and_is_noticed(setup: ServingSetup) -> None:
    setup.send(generate())
    setup.sample("a", "abort")
    (record,) = setup.written
    assert isinstance(record, TurnInterrupted)
    assert record.reason == "engine_failed"
    assert setup.serving.engine_failed


def test_an_engine_that_takes_no_more_turns_is_noticed(setup: ServingSetup) -> None:
    setup.engine.refusal = EngineStateInvalid("submit", "failed")
    setup.send(generate())
    (record,) = setup.written
    assert isinstance(record, TurnInterrupted)
    assert record.reason == "engine_failed"
    assert setup.serving.engine_failed


def test_a_lost_record_ends_its_turn_without_another(setup: ServingSetup) -> None:
    setup.send(generate(stream=True))
    setup.sample("a")
    error = DeliveryFailed("sessions", 5, "session", "timed out")
    setup.deliveries[0](error, -1)
    (live,) = setup.undelivered
    setup.serving.drop(live)
    assert setup.engine.calls == [("abort", "turn/1")]
    setup.sample("b", "stop")
    assert len(setup.written) == 1
    setup.serving.drop(live)


def test_turns_pinned_to_other_weights_go_back_when_these_change(setup: ServingSetup) -> None:
    setup.send(generate(turn_id="pinned", pinned_version=7))
    setup.send(generate(turn_id="free"))
    setup.serving.adopt(8, NOW)
    (record,) = setup.written
    assert (record.turn_id, getattr(record, "reason", "")) == ("pinned", "paused")
    setup.send(generate(turn_id="late", pinned_version=7))
    assert isinstance(setup.written[1], TurnFailed)
    assert setup.written[1].reason == "no_worker"
    assert set(setup.serving.running) == {"free"}
