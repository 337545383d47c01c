from typing import Any

import orjson
import pytest

from producers.gateway.dialects.anthropic_messages.request import parse, prompt
from producers.gateway.dialects.canonical import CanonicalRequest
from producers.gateway.errors import ApiError
from schemas.records import Sampling

USER = {"role": "user", "content": "hi"}
TOOL = {"name": "lookup", "description": "finds", "input_schema": {"type": "object"}}
USE = {"type": "tool_use", "id": "call_t_0", "name": "lookup", "input": {"a": 1}}
CALL = {
    "id": "call_t_0",
    "type": "function",
    "function": {"name": "lookup", "arguments": '{"a": 1}'},
}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}


def parsed(**request: Any) -> CanonicalRequest:
    whole = {"model": "m", "max_tokens": 9, "messages": [USER], **request}
    return parse(orjson.dumps({name: value for name, value in whole.items() if value != "-"}), 4)


def refusal(**request: Any) -> ApiError:
    with pytest.raises(ApiError) as error:
        parsed(**request)
    assert error.value.status == 400
    return error.value


def messages(*sent: dict[str, Any], **more: Any) -> list[Any]:
    return [orjson.loads(message) for message in parsed(messages=list(sent), **more).messages]


def result(content: Any = "42", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "call_t_0", "content": content, **more}


def test_a_plain_request_asks_for_nothing_else() -> None:
    request = parsed()
    assert request.dialect == "anthropic.messages"
    assert request.messages == (b'{"content":"hi","role":"user"}',)
    assert request.sampling == Sampling(max_tokens=9)
    assert (request.tools, request.template_args, request.tool_choice) == (None, None, "auto")
    assert (request.choices, request.stream, request.wants_logprobs) == (1, False, False)


@pytest.mark.parametrize(
    "content", ["a\nb", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]]
)
def test_text_may_be_a_list_of_blocks(content: Any) -> None:
    assert messages({"role": "user", "content": content}) == [{"role": "user", "content": "a\nb"}]
    assert messages(USER, system=content)[0] == {"role": "system", "content": "a\nb"}


def test_what_one_role_says_in_a_row_is_one_message() -> None:
    said = messages(USER, {"role": "user", "content": "ho"})
    assert said == [{"role": "user", "content": "hi\nho"}]
    split = [
        {"role": "assistant", "content": [block]} for block in ({"type": "text", "text": "x"}, USE)
    ]
    joined = {"role": "assistant", "content": "x", "tool_calls": [CALL]}
    assert messages(USER, *split, {"role": "user", "content": [result()]})[1] == joined


def test_a_system_message_stays_where_it_is() -> None:
    late = {"role": "system", "content": "mind this"}
    assert messages(USER, late, system="be kind") == [
        {"role": "system", "content": "be kind"},
        USER,
        late,
    ]


def test_the_billing_header_of_claude_code_is_not_for_the_model() -> None:
    system = [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cch=1a2b3;"},
        {"type": "text", "text": "be kind", "cache_control": {"type": "ephemeral"}},
    ]
    assert messages(USER, system=system)[0] == {"role": "system", "content": "be kind"}
    assert messages(USER, system=system[:1]) == [USER]


def test_tool_results_are_messages_of_their_own_before_what_the_user_says() -> None:
    answer = {"role": "assistant", "content": [USE, {**USE, "id": "call_t_1"}]}
    user = {
        "role": "user",
        "content": [
            result(),
            result([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
            {"type": "text", "text": "go on"},
        ],
    }
    assert messages(USER, answer, user)[2:] == [
        {"role": "tool", "tool_call_id": "call_t_0", "content": "42"},
        {"role": "tool", "tool_call_id": "call_t_0", "content": "a\nb"},
        {"role": "user", "content": "go on"},
    ]


@pytest.mark.parametrize(
    ("sent", "content"),
    [
        (result(None), ""),
        (result([]), ""),
        (result("no such file", is_error=True), "Error: no such file"),
        (result("fine", is_error=False), "fine"),
        (result([{"type": "tool_reference", "tool_name": "lookup"}]), "lookup"),
        (
            result(
                [
                    {
                        "type": "search_result",
                        "title": "t",
                        "source": "s",
                        "content": [{"type": "text", "text": "x"}],
                    }
                ]
            ),
            "t\ns\nx",
        ),
    ],
)
def test_a_tool_result_is_text(sent: dict[str, Any], content: str) -> None:
    answer = {"role": "assistant", "content": [USE]}
    read = messages(USER, answer, {"role": "user", "content": [sent]})[2]
    assert read["content"] == content


def test_results_may_come_in_any_order_and_in_several_messages() -> None:
    answer = {"role": "assistant", "content": [USE, {**USE, "id": "call_t_1"}]}
    second, first = result(tool_use_id="call_t_1"), result()
    mind = {"role": "system", "content": "mind this"}
    told: list[Any] = [{"role": "user", "content": [one]} for one in (second, first)]
    read = messages(USER, answer, mind, *told)
    assert [one.get("tool_call_id") for one in read[-2:]] == ["call_t_1", "call_t_0"]


@pytest.mark.parametrize(
    "before",
    [
        [],
        [USER],
        [
            {"role": "assistant", "content": [{**USE, "id": "call_t_1"}]},
            {"role": "user", "content": [result(tool_use_id="call_t_1")]},
        ],
        [
            {"role": "assistant", "content": [USE]},
            {"role": "user", "content": [result()]},
            {"role": "assistant", "content": "so"},
        ],
    ],
)
def test_a_tool_result_without_its_call_is_refused(before: list[Any]) -> None:
    error = refusal(messages=[*before, {"role": "user", "content": [result()]}])
    assert error.param == f"messages.{len(before)}.content.0.tool_use_id"
    assert error.message.startswith(error.param) and "call_t_0" in error.message


def test_an_answer_of_the_model_is_what_it_sampled() -> None:
    answer = {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": " hm \n", "signature": "s"},
            {"type": "redacted_thinking", "data": "x"},
            {"type": "text", "text": "let me "},
            {"type": "text", "text": "see"},
            {**USE, "cache_control": {"type": "ephemeral"}, "caller": {"type": "direct"}},
        ],
    }
    assert messages(USER, answer, {"role": "user", "content": [result()]})[1] == {
        "role": "assistant",
        "reasoning_content": " hm \n",
        "content": "let me see",
        "tool_calls": [CALL],
    }


def test_an_answer_of_calls_alone_has_no_content() -> None:
    said = messages(USER, {"role": "assistant", "content": [USE]}, USER)[1]
    assert said == {"role": "assistant", "tool_calls": [CALL]}


@pytest.mark.parametrize("content", ["", []])
def test_an_empty_answer_is_empty(content: Any) -> None:
    said = messages(USER, {"role": "assistant", "content": content}, USER)[1]
    assert said == {"role": "assistant", "content": ""}


def test_a_plain_text_document_is_text() -> None:
    document = {
        "type": "document",
        "title": "notes",
        "source": {"type": "text", "media_type": "text/plain", "data": "x"},
    }
    assert messages({"role": "user", "content": [document]})[0]["content"] == "notes\nx"


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
    ("wrong", "param"),
    [
        ("text", "messages.0"),
        ({"content": "x"}, "messages.0.role"),
        ({"role": "tool", "content": "x"}, "messages.0.role"),
        ({"role": ["user"], "content": "x"}, "messages.0.role"),
        ({"role": "user"}, "messages.0.content"),
        ({"role": "user", "content": 1}, "messages.0.content"),
        ({"role": "user", "content": [1]}, "messages.0.content.0"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages.0.content.0"),
        ({"role": "user", "content": [{"text": "x"}]}, "messages.0.content.0"),
        (
            {"role": "user", "content": [{"type": "tool_result"}]},
            "messages.0.content.0.tool_use_id",
        ),
        ({"role": "user", "content": [USE]}, "messages.0.content.0"),
        ({"role": "user", "content": [IMAGE]}, "messages.0.content.0"),
        ({"role": "user", "content": [result([IMAGE])]}, "messages.0.content.0.content.0"),
        ({"role": "assistant", "content": [{**USE, "input": "x"}]}, "messages.0.content.0.input"),
        ({"role": "assistant", "content": [{"type": "tool_use"}]}, "messages.0.content.0"),
        ({"role": "assistant", "content": [{"type": "thinking"}]}, "messages.0.content.0.thinking"),
        ({"role": "assistant", "content": [{"type": "server_tool_use"}]}, "messages.0.content.0"),
        ({"role": "system", "content": [{"type": "tool_addition"}]}, "messages.0.content.0"),
    ],
)
def test_a_wrong_message_is_named(wrong: Any, param: str) -> None:
    error = refusal(messages=[wrong, USER])
    assert error.param == param
    assert error.message.startswith(param)


@pytest.mark.parametrize("content", [[IMAGE], [result([IMAGE])]])
def test_what_is_not_text_is_refused_clearly(content: Any) -> None:
    error = refusal(messages=[{"role": "user", "content": content}])
    assert "'image'" in error.message and "text" in error.message


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
