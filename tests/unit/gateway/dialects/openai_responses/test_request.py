import random
from typing import Any

import orjson
import pytest

from seamlessflow.producers.gateway.dialects.openai_chat.request import parse as parse_chat
from seamlessflow.producers.gateway.dialects.openai_responses.request import parse
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.schemas.records import Sampling
from tests.builders.gateway.openai_responses import (
    OUTPUT,
    USER,
    call,
    functions,
    messages,
    parsed,
    refusal,
)
from tests.paths import CODEX_REQUEST

CODEX = CODEX_REQUEST.read_bytes()
"""The first request of Codex 0.169.0, with shortened texts."""


def test_a_plain_request_asks_for_what_a_plain_chat_request_does() -> None:
    request, chat = (
        parsed(),
        parse_chat(b'{"model":"m","messages":[{"role":"user","content":"hi"}]}', 4),
    )
    assert request.messages == chat.messages == (b'{"content":"hi","role":"user"}',)
    assert request.sampling == chat.sampling == Sampling()
    assert (request.tools, request.tool_choice, request.choices) == (None, "auto", 1)
    assert (request.previous_turn, request.own_messages, request.stream) == (None, 0, False)


def test_the_first_request_of_codex_is_taken_whole() -> None:
    request = parse(CODEX, 1)
    roles = [orjson.loads(message)["role"] for message in request.messages]
    assert roles == ["system", "system", "user", "user"]
    names = [function["name"] for function in functions(request)]
    assert names[0] == "exec_command"
    assert "multi_agent_v1__spawn_agent" in names
    assert "web_search" not in names
    assert request.stream and not request.wants_logprobs
    assert request.echoed["prompt_cache_key"]


def test_developers_and_instructions_speak_as_the_system() -> None:
    read = messages({"role": "developer", "content": "b"}, USER, instructions="a")
    assert [(m["role"], m["content"]) for m in read] == [
        ("system", "a"),
        ("system", "b"),
        ("user", "hi"),
    ]


def test_instructions_are_this_requests_alone() -> None:
    assert parsed(instructions="a").own_messages == 1
    assert parsed(instructions="").own_messages == 0


def test_a_request_goes_on_from_a_response() -> None:
    request = parsed(previous_response_id="resp_abc", input=[OUTPUT], instructions="a")
    assert (request.previous_turn, request.own_messages, len(request.messages)) == ("abc", 1, 2)
    other = parsed(previous_response_id="resp_b", input=[OUTPUT], instructions="a")
    assert request.body_hashes() != other.body_hashes()


def test_a_response_of_somebody_else_is_not_found() -> None:
    error = refusal(previous_response_id="chatcmpl-1")
    assert (error.code, error.param) == ("previous_response_not_found", "previous_response_id")


def test_sampling_parameters_are_taken_over() -> None:
    request = parsed(
        max_output_tokens=7,
        temperature=1,
        top_p=0.5,
        top_k=3,
        include=["message.output_text.logprobs"],
        top_logprobs=2,
    )
    assert request.sampling == Sampling(
        max_tokens=7, temperature=1, top_p=0.5, top_k=3, top_logprobs=2
    )
    assert request.wants_logprobs
    assert parsed(top_logprobs=2).sampling == Sampling()


def test_the_form_of_an_answer_is_its_schema() -> None:
    schema = {"type": "object", "properties": {"b": {}, "a": {}}}
    form = {"type": "json_schema", "name": "n", "schema": schema, "strict": True}
    asked = parsed(text={"format": form, "verbosity": "low"})
    assert asked.sampling.json_schema == orjson.dumps(schema).decode()
    assert parsed(text={"format": {"type": "json_object"}}).sampling.json_schema is not None
    assert parsed(text={"format": {"type": "text"}}).sampling == Sampling()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", 1),
        ("input", []),
        ("input", 1),
        ("input", None),
        ("instructions", ["x"]),
        ("max_output_tokens", 0),
        ("temperature", 3),
        ("top_p", 2),
        ("top_logprobs", 21),
        ("stream", "yes"),
        ("include", "logprobs"),
        ("include", {}),
        ("metadata", "x"),
        ("reasoning", "x"),
        ("truncation", "x"),
        ("truncation", ["auto"]),
        ("store", "x"),
        ("user", 1),
        ("service_tier", {}),
        ("safety_identifier", []),
        ("prompt_cache_key", 1),
        ("max_tool_calls", "3"),
        ("tools", {}),
        ("text", "plain"),
        ("previous_response_id", 1),
        ("background", True),
        ("conversation", "conv_1"),
        ("prompt", {"id": "pmpt_1"}),
        ("context_management", [{"type": "compaction"}]),
        ("n", 2),
    ],
)
def test_a_wrong_parameter_is_named(name: str, value: Any) -> None:
    assert refusal(**{name: value}).param == name


@pytest.mark.parametrize(
    ("request_part", "param"),
    [
        ({"include": ["foo"]}, "include[0]"),
        ({"include": ["reasoning.encrypted_content", 1]}, "include[1]"),
        ({"metadata": {"a": "b", "c": 5}}, "metadata.c"),
        ({"reasoning": {"effort": 5}}, "reasoning.effort"),
        ({"reasoning": {"summary": ["x"]}}, "reasoning.summary"),
    ],
)
def test_what_is_wrong_inside_of_a_parameter_is_named(
    request_part: dict[str, Any], param: str
) -> None:
    assert refusal(**request_part).param == param


@pytest.mark.parametrize("form", [{"type": "json_schema"}, {"type": "json_schema", "schema": 1}])
def test_a_form_without_a_schema_is_named(form: Any) -> None:
    assert refusal(text={"format": form}).param == "text.format.schema"


@pytest.mark.parametrize(
    "harmless",
    [
        {"user": "u"},
        {"metadata": {"a": "b"}},
        {"store": False},
        {"background": False},
        {"parallel_tool_calls": True},
        {"reasoning": {"effort": "low", "summary": "auto"}},
        {"reasoning": {"effort": None, "context": "all"}},
        {"truncation": "auto"},
        {"service_tier": "auto"},
        {"safety_identifier": "x"},
        {"prompt_cache_key": "x"},
        {"client_metadata": {"a": "b"}},
        {"stream_options": {"include_obfuscation": False}},
        {"max_tool_calls": 3},
        {"include": ["reasoning.encrypted_content"]},
        {"text": {"verbosity": "low"}},
        {"no_such_parameter": [1, 2]},
    ],
)
def test_parameters_without_effect_are_ignored(harmless: dict[str, Any]) -> None:
    assert parsed(**harmless).body_hashes() == parsed().body_hashes()


def test_nesting_too_deep_to_store_is_refused() -> None:
    deep = b'{"a":' * 300 + b"{}" + b"}" * 300
    tool = b'[{"type":"function","name":"f","parameters":' + deep + b"}]"
    named = {"tools": tool, "reasoning": deep}
    for name, value in named.items():
        with pytest.raises(ApiError) as error:
            parse(b'{"model":"m","input":"hi","%b":%b}' % (name.encode(), value), 1)
        assert (error.value.status, error.value.param) == (400, name)


def test_random_damage_is_either_read_or_refused(rng: random.Random) -> None:
    for _ in range(1000):
        body = bytearray(CODEX)
        for _ in range(rng.randint(1, 4)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        try:
            parse(bytes(body), 1)
        except ApiError as error:
            assert error.status == 400


def test_any_member_of_another_kind_is_either_read_or_refused(rng: random.Random) -> None:
    strange: list[Any] = [None, True, 1, "x", [], [1], {}, {"type": "x"}, [{"type": "function"}]]
    whole = orjson.loads(CODEX)
    items = [call(), OUTPUT, {"type": "reasoning", "summary": []}, {"role": "assistant"}]
    for _ in range(3000):
        body = orjson.loads(orjson.dumps({**whole, "input": [*whole["input"], *items]}))
        place: Any = body
        while True:
            name = rng.choice(list(place) if isinstance(place, dict) else range(len(place)))
            if not isinstance(place[name], dict | list) or not place[name] or rng.random() < 0.3:
                break
            place = place[name]
        place[name] = rng.choice(strange)
        try:
            parse(orjson.dumps(body), 1)
        except ApiError as error:
            assert error.status == 400
