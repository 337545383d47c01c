"""Completions calls of OpenAI's client: real Kafka, a real gateway, a scripted manager."""

import struct

import openai
import orjson
import pytest

from seamlessflow.schemas.records import AssignReward, Record, RequestTurn, Sampling
from tests import http
from tests.builders.gateway.scripted_manager import (
    GatewayProcess,
    ScriptedManager,
    deltas,
    finished,
)


def test_a_text_is_continued(client: openai.OpenAI, manager: ScriptedManager, session: str) -> None:
    manager.scripts[session] = lambda turn: [finished(turn, " upon a time")]
    answer = client.completions.create(model="m", prompt="once", max_tokens=9, n=2)
    turn = manager.await_command(RequestTurn, session)
    assert answer.id == f"cmpl-{turn.turn_id}"
    assert [choice.text for choice in answer.choices] == [" upon a time"] * 2
    assert turn.messages == (b'{"content":"once","role":"raw"}',)
    assert (turn.raw, turn.dialect) == (True, "openai.completions")
    assert turn.sampling == Sampling(max_tokens=9)


def test_token_ids_are_handed_on(
    client: openai.OpenAI, manager: ScriptedManager, session: str
) -> None:
    client.completions.create(model="m", prompt=[1, 2, 3])
    turn = manager.await_command(RequestTurn, session)
    assert orjson.loads(turn.messages[0]) == {"role": "raw", "ids": [1, 2, 3]}


def test_a_text_is_streamed(client: openai.OpenAI, manager: ScriptedManager, session: str) -> None:
    def script(turn: RequestTurn) -> list[Record]:
        first, last = deltas(turn, " up", "on")
        return [first, finished(turn, " upon", token_offset=3, delta=last.delta)]

    manager.scripts[session] = script
    stream = client.completions.create(
        model="m", prompt="once", stream=True, stream_options={"include_usage": True}
    )
    *events, usage = list(stream)
    assert "".join(event.choices[0].text for event in events) == " upon"
    assert events[-1].choices[0].finish_reason == "stop"
    assert usage.usage is not None and usage.usage.completion_tokens == 5
    assert all("usage" in event.model_fields_set and event.usage is None for event in events)


def test_logprobs_come_as_the_client_reads_them(
    client: openai.OpenAI, manager: ScriptedManager, session: str
) -> None:
    scores = {"token_ids": struct.pack("<i", 7), "logprobs": struct.pack("<f", -1)}
    manager.scripts[session] = lambda turn: [finished(turn, "a", **scores)]
    answer = client.completions.create(model="m", prompt="once", logprobs=2)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert (logprobs.tokens, logprobs.token_logprobs) == (["token_id:7"], [-1.0])
    turn = manager.await_command(RequestTurn, session)
    assert (turn.wants_logprobs, turn.sampling.top_logprobs) == (True, 2)


def test_an_answer_is_rewarded_by_its_name(
    client: openai.OpenAI, gateway: GatewayProcess, manager: ScriptedManager, session: str
) -> None:
    answer = client.completions.create(model="m", prompt="once")
    judged = http.post(
        f"{gateway.url}/sessions/{session}/reward",
        headers=gateway.admin,
        json={"value": 1, "turn": answer.id},
    )
    assert judged.status_code == 200
    assigned = manager.await_command(AssignReward, session)
    assert assigned.reward.turn_id == manager.await_command(RequestTurn, session).turn_id


def test_several_prompts_are_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="one call takes one") as raised:
        client.completions.create(model="m", prompt=["a", "b"])
    assert raised.value.param == "prompt"
