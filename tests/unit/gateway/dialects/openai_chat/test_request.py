import random
from typing import Any

import orjson
import pytest

from seamlessflow.producers.gateway.dialects.openai_chat.request import parse
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.schemas.records import Sampling
from tests.builders.gateway.openai_chat import CALL, TOOL, USER, parsed, refusal


def test_a_plain_request_asks_for_nothing_else() -> None:
    request = parsed()
    assert request.messages == (b'{"content":"hi","role":"user"}',)
    assert request.sampling == Sampling()
    assert (request.tools, request.template_args) == (None, None)
    assert (request.tool_choice, request.choices) == ("auto", 1)
    assert not request.stream and not request.include_usage and not request.wants_logprobs


def test_equal_requests_are_equal_bytes_however_they_are_spelled() -> None:
    spelled = (
        b'{"messages":[{"content":"hi","name":null,"role":"user","x":1}],"model":"m","n":null}'
    )
    assert parse(spelled, 4) == parsed()
    assert parse(spelled, 4).body_hashes() == parsed().body_hashes()


@pytest.mark.parametrize(
    "other",
    [
        {"messages": [{"role": "user", "content": "ho"}]},
        {"messages": [USER, USER]},
        {"tools": [TOOL]},
        {"temperature": 0.5},
        {"model": "n"},
        {"chat_template_kwargs": {"a": 1}},
        {"tools": [TOOL], "tool_choice": "required"},
    ],
)
def test_what_decides_the_answer_decides_the_hash(other: dict[str, Any]) -> None:
    assert parsed(**other).body_hashes() != parsed().body_hashes()


def test_each_choice_has_a_hash_of_its_own() -> None:
    assert len(set(parsed(n=4).body_hashes())) == 4


def test_sampling_parameters_are_taken_over() -> None:
    request = parsed(
        max_completion_tokens=7,
        temperature=1,
        top_p=0.5,
        top_k=-1,
        min_p=0.1,
        presence_penalty=-1,
        frequency_penalty=2,
        repetition_penalty=1.1,
        logit_bias={"12": -100},
        min_tokens=2,
        seed=5,
        stop="END",
    )
    assert request.sampling == Sampling(
        max_tokens=7,
        temperature=1,
        top_p=0.5,
        top_k=0,
        min_p=0.1,
        presence_penalty=-1,
        frequency_penalty=2,
        repetition_penalty=1.1,
        logit_bias={"12": -100.0},
        min_tokens=2,
        seed=5,
        stop=("END",),
    )
    assert parsed(max_tokens=3).sampling.max_tokens == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", 1),
        ("messages", []),
        ("messages", "hi"),
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("temperature", "hot"),
        ("temperature", True),
        ("top_p", 1.5),
        ("max_tokens", 0),
        ("max_tokens", 1.5),
        ("max_tokens", 2**40),
        ("n", 0),
        ("n", 5),
        ("stop", [1]),
        ("stop", ""),
        ("stop", ["x"] * 17),
        ("logit_bias", {"a": 1}),
        ("logit_bias", []),
        ("stream", "yes"),
        ("logprobs", 1),
        ("top_logprobs", 3),
        ("tools", {}),
        ("tool_choice", "maybe"),
        ("tool_choice", "required"),
        ("chat_template_kwargs", []),
        ("response_format", {"type": "grammar"}),
        ("response_format", "json"),
        ("stream_options", True),
        ("moderation", {"model": "x"}),
        ("ignore_eos", True),
        ("guided_json", {}),
        ("functions", [{}]),
        ("audio", {"voice": "x"}),
        ("modalities", ["audio"]),
        ("seed", 2**63),
    ],
)
def test_a_wrong_parameter_is_named(name: str, value: Any) -> None:
    assert refusal(**{name: value}).param == name


@pytest.mark.parametrize(
    "harmless",
    [
        {"user": "u"},
        {"metadata": {"a": "b"}},
        {"store": True},
        {"parallel_tool_calls": True},
        {"reasoning_effort": "low"},
        {"response_format": {"type": "text"}},
        {"modalities": ["text"]},
        {"top_logprobs": 0},
        {"verbosity": "low", "service_tier": "flex", "safety_identifier": "x"},
        {"prompt_cache_key": "k", "prediction": {"type": "content", "content": "x"}},
        {"ignore_eos": False, "skip_special_tokens": True, "stop_token_ids": []},
        {"function_call": "auto"},
        {"no_such_parameter": [1, 2]},
        {"tools": [], "tool_choice": "none"},
        {"stream_options": {"include_usage": True}},
    ],
)
def test_parameters_without_effect_are_ignored(harmless: dict[str, Any]) -> None:
    assert parsed(**harmless) == parsed()


def test_an_agent_may_ask_for_one_tool_call_at_most() -> None:
    assert parsed(parallel_tool_calls=False).sampling == Sampling(one_tool_call=True)
    assert refusal(parallel_tool_calls="no").param == "parallel_tool_calls"


def test_the_likeliest_tokens_are_asked_for_with_logprobs() -> None:
    request = parsed(logprobs=True, top_logprobs=20)
    assert (request.wants_logprobs, request.sampling.top_logprobs) == (True, 20)
    assert refusal(logprobs=True, top_logprobs=21).param == "top_logprobs"
    assert "needs logprobs" in refusal(logprobs=False, top_logprobs=1).message


@pytest.mark.parametrize(
    ("wanted", "schema"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, '{"type":"object"}'),
        (
            {"type": "json_schema", "json_schema": {"name": "x", "schema": {"b": 1, "a": {}}}},
            '{"b":1,"a":{}}',
        ),
    ],
)
def test_a_format_becomes_a_schema_with_members_in_their_order(
    wanted: dict[str, Any], schema: str | None
) -> None:
    assert parsed(response_format=wanted).sampling == Sampling(json_schema=schema)


@pytest.mark.parametrize("inside", [{}, {"schema": "text"}, {"schema": None}])
def test_a_format_without_a_schema_is_named(inside: dict[str, Any]) -> None:
    wanted = {"type": "json_schema", "json_schema": inside}
    assert refusal(response_format=wanted).param == "response_format.json_schema.schema"


def test_template_arguments_are_switches_numbers_or_words() -> None:
    asked = {"enable_thinking": False, "level": "low", "budget": 3, "absent": None}
    canonical = b'{"budget":3,"enable_thinking":false,"level":"low"}'
    assert parsed(chat_template_kwargs=asked).template_args == canonical
    wrong = refusal(chat_template_kwargs={"documents": []})
    assert wrong.param == "chat_template_kwargs.documents"


def test_usage_is_asked_for_only_with_a_stream() -> None:
    assert parsed(stream=True, stream_options={"include_usage": True}).include_usage
    assert not parsed(stream=True).include_usage


@pytest.mark.parametrize(
    ("choice", "read"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ({"type": "function", "function": {"name": "lookup"}}, "lookup"),
    ],
)
def test_tool_choice_is_a_word_or_a_function(choice: Any, read: str) -> None:
    assert parsed(tools=[TOOL], tool_choice=choice).tool_choice == read


def allowed(mode: str, *names: str) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_the_model_is_shown_the_allowed_tools_alone(mode: str) -> None:
    other = {"type": "function", "function": {"name": "other"}}
    request = parsed(tools=[TOOL, other], tool_choice=allowed(mode, "lookup"))
    assert request.tool_choice == mode
    assert request.tools == parsed(tools=[TOOL]).tools
    both = parsed(tools=[TOOL, other], tool_choice=allowed(mode, "other", "lookup"))
    assert both.tools == parsed(tools=[TOOL, other]).tools


@pytest.mark.parametrize(
    ("choice", "param"),
    [
        (allowed("auto"), "tool_choice.allowed_tools.tools"),
        (allowed("auto", "other"), "tool_choice.allowed_tools.tools[0]"),
        (allowed("none", "lookup"), "tool_choice.allowed_tools.mode"),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto"}}, "tool_choice"),
        ({"type": "allowed_tools", "mode": "auto", "tools": []}, "tool_choice"),
    ],
)
def test_allowed_tools_are_a_mode_and_tools_that_are_there(choice: Any, param: str) -> None:
    assert refusal(tools=[TOOL], tool_choice=choice).param == param


def test_a_chosen_function_must_be_among_the_tools() -> None:
    choice = {"type": "function", "function": {"name": "other"}}
    assert refusal(tools=[TOOL], tool_choice=choice).param == "tool_choice"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b'{"model": NaN}',
        b'\xff\xfe{"model": "m"}',
        b'{"model": "\xed\xa0\x80"}',
        b'{"model": "m", "messages": [{"role": "user", "content": "\\ud800"}]}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
)
def test_what_is_not_a_json_object_is_refused(body: bytes) -> None:
    refusal(body)


def test_nesting_too_deep_to_store_is_refused() -> None:
    deep = b'{"a":' * 300 + b"{}" + b"}" * 300
    head = b'{"model":"m","messages":[{"role":"user","content":"hi"}],'
    body = (
        head + b'"response_format":{"type":"json_schema","json_schema":{"schema":' + deep + b"}}}"
    )
    assert refusal(body).param == "response_format"
    tool = b'[{"type":"function","function":{"name":"f","parameters":' + deep + b"}}]"
    assert refusal(head + b'"tools":' + tool + b"}").param == "tools"


def test_random_damage_is_either_read_or_refused(rng: random.Random) -> None:
    whole = orjson.dumps(
        {
            "model": "m",
            "messages": [USER, {"role": "assistant", "tool_calls": [CALL]}],
            "tools": [TOOL],
            "temperature": 0.5,
            "stop": ["a"],
        }
    )
    for _ in range(3000):
        body = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        try:
            parse(bytes(body), 4)
        except ApiError as error:
            assert error.status == 400
