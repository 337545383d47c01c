from typing import Any

import orjson
import pytest

from seamlessflow.producers.gateway.dialects.anthropic_messages.request import parse, prompt
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.schemas.records import Sampling
from tests.builders.gateway.anthropic_messages import USE, USER, parsed, refusal

TOOL = {"name": "lookup", "description": "finds", "input_schema": {"type": "object"}}


def test_a_plain_request_asks_for_nothing_else() -> None:
    request = parsed()
    assert request.dialect == "anthropic.messages"
    assert request.messages == (b'{"content":"hi","role":"user"}',)
    assert request.sampling == Sampling(max_tokens=9)
    assert (request.tools, request.template_args, request.tool_choice) == (None, None, "auto")
    assert (request.choices, request.stream, request.wants_logprobs) == (1, False, False)


def test_an_answer_that_the_request_begins_is_refused_as_the_vendor_does() -> None:
    error = refusal(messages=[USER, {"role": "assistant", "content": "I say"}])
    assert "does not support assistant message prefill" in error.message


def test_sampling_parameters_are_taken_over() -> None:
    sampling = parsed(
        max_tokens=7, temperature=1, top_p=0.5, top_k=3, stop_sequences=["END"]
    ).sampling
    assert sampling == Sampling(max_tokens=7, temperature=1, top_p=0.5, top_k=3, stop=("END",))


@pytest.mark.parametrize("place", ["output_format", "output_config"])
def test_a_schema_may_be_asked_for(place: str) -> None:
    schema = {"type": "object", "properties": {"b": {}, "a": {}}}
    wanted = {"type": "json_schema", "schema": schema}
    asked = {place: wanted if place == "output_format" else {"format": wanted}}
    assert parsed(**asked).sampling.json_schema == orjson.dumps(schema).decode()


@pytest.mark.parametrize(
    ("config", "thinking"),
    [
        (None, "shown"),
        ({"type": "enabled", "budget_tokens": 1024}, "shown"),
        ({"type": "adaptive"}, "shown"),
        ({"type": "adaptive", "display": "omitted"}, "omitted"),
        ({"type": "disabled"}, "hidden"),
    ],
)
def test_thinking_is_shown_unless_the_agent_says_otherwise(config: Any, thinking: str) -> None:
    assert parsed(thinking=config).echoed == {"thinking": thinking}


def test_tools_keep_their_schemas_as_they_were_sent() -> None:
    schema = {"type": "object", "required": ["b"], "properties": {"b": {}, "a": {}}}
    tool = {"input_schema": schema, "strict": True, "name": "f", "type": "custom"}
    expected = {"type": "function", "function": {"name": "f", "parameters": schema}}
    assert parsed(tools=[tool]).tools == orjson.dumps([expected])
    described = {"name": "lookup", "description": "finds", "parameters": {"type": "object"}}
    assert parsed(tools=[TOOL]).tools == orjson.dumps([{"type": "function", "function": described}])


@pytest.mark.parametrize(
    ("choice", "read"),
    [
        ({"type": "auto", "disable_parallel_tool_use": True}, "auto"),
        ({"type": "none"}, "none"),
        ({"type": "any"}, "required"),
        ({"type": "tool", "name": "lookup"}, "lookup"),
    ],
)
def test_tool_choice_has_its_canonical_name(choice: Any, read: str) -> None:
    assert parsed(tools=[TOOL], tool_choice=choice).tool_choice == read


@pytest.mark.parametrize("kind", ["auto", "any", "tool"])
def test_an_agent_may_ask_for_one_tool_call_at_most(kind: str) -> None:
    choice = {"type": kind, "name": "lookup", "disable_parallel_tool_use": True}
    assert parsed(tools=[TOOL], tool_choice=choice).sampling.one_tool_call
    choice["disable_parallel_tool_use"] = False
    assert not parsed(tools=[TOOL], tool_choice=choice).sampling.one_tool_call
    choice["disable_parallel_tool_use"] = "yes"
    error = refusal(tools=[TOOL], tool_choice=choice)
    assert error.param == "tool_choice.disable_parallel_tool_use"


@pytest.mark.parametrize(
    "harmless",
    [
        {"metadata": {"user_id": "u"}},
        {"service_tier": "auto"},
        {"thinking": {"type": "adaptive"}},
        {"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}},
        {"output_config": {"effort": "high"}},
        {"cache_control": {"type": "ephemeral"}},
        {"mcp_servers": []},
        {"container": None},
        {"speed": "fast", "inference_geo": "us", "diagnostics": {}, "no_such_parameter": [1]},
        {"tools": [], "tool_choice": {"type": "none"}},
        {"stop_sequences": []},
    ],
)
def test_parameters_without_effect_are_ignored(harmless: dict[str, Any]) -> None:
    assert parsed(**harmless) == parsed()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", "-"),
        ("messages", "-"),
        ("max_tokens", "-"),
        ("max_tokens", 0),
        ("max_tokens", "9"),
        ("messages", []),
        ("messages", "hi"),
        ("system", 1),
        ("temperature", 1.1),
        ("top_k", -2),
        ("stop_sequences", [1]),
        ("stop_sequences", "a"),
        ("stream", 1),
        ("tools", {}),
        ("tools", [TOOL, TOOL]),
        ("tool_choice", "auto"),
        ("tool_choice", {"type": "any"}),
        ("thinking", "on"),
        ("output_config", []),
        ("output_format", {"type": "text"}),
        ("mcp_servers", [{"type": "url", "url": "http://x", "name": "x"}]),
        ("container", "c"),
        ("thread", {"type": "create"}),
        ("compaction", {"type": "summarize"}),
    ],
)
def test_a_wrong_parameter_is_named(name: str, value: Any) -> None:
    assert refusal(**{name: value}).param == name


@pytest.mark.parametrize(
    "tool",
    [
        "lookup",
        {},
        {"name": ""},
        {"name": "f"},
        {"name": "f", "input_schema": []},
        {"name": "f", "input_schema": {}, "description": 1},
        {"type": "web_search_20250305", "name": "web_search"},
        {"type": "bash_20250124", "name": "bash"},
    ],
)
def test_a_wrong_tool_is_named(tool: Any) -> None:
    assert (refusal(tools=[TOOL, tool]).param or "").startswith("tools.1")


def test_a_tool_of_the_vendors_is_named_when_it_is_refused() -> None:
    error = refusal(tools=[{"type": "web_search_20250305", "name": "web_search"}])
    assert "web_search_20250305" in error.message


@pytest.mark.parametrize("depth", [100, 300, 990])
def test_deep_inputs_are_taken_or_refused(depth: int) -> None:
    deep = b'{"a":' * depth + b"{}" + b"}" * depth
    use = orjson.dumps({**USE, "input": "-"}).replace(b'"-"', deep)
    body = b'{"model":"m","max_tokens":9,"messages":[{"role":"assistant","content":[%b]},%b]}'
    try:
        assert parse(body % (use, orjson.dumps(USER)), 4).messages
    except ApiError as error:
        assert error.status == 400


def test_counting_needs_the_prompt_alone() -> None:
    body = {"model": "m", "system": "s", "messages": [USER], "tools": [TOOL]}
    asked = prompt(orjson.dumps(body))
    assert asked.messages == parsed(system="s").messages
    assert asked.tools == parsed(tools=[TOOL]).tools
    with pytest.raises(ApiError):
        prompt(b'{"model": "m"}')
