from typing import Any

import orjson
import pytest

from tests.builders.gateway.openai_chat import CALL, TOOL, USER, message, parsed, refusal

ASKED_TOOL = {"role": "assistant", "tool_calls": [CALL]}


def tool_answer(call: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call, "content": "42"}


def test_text_parts_are_joined() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert message({"role": "user", "content": parts}) == {"role": "user", "content": "ab"}


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file", "video"])
@pytest.mark.parametrize("said", [{"role": "user"}, {"role": "tool", "tool_call_id": "call_t_0"}])
def test_what_is_not_text_is_refused_clearly(said: dict[str, Any], kind: str) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": kind, kind: {}}]
    error = refusal(messages=[USER, {**said, "content": parts}])
    assert error.param == "messages[1].content[1]"
    assert kind in error.message and "text only" in error.message


def test_developer_messages_are_system_messages() -> None:
    assert message({"role": "developer", "content": "x"}) == {"role": "system", "content": "x"}


def test_an_assistant_message_of_the_official_client_comes_back_as_it_was_sampled() -> None:
    dumped = {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "annotations": None,
        "audio": None,
        "function_call": None,
        "tool_calls": [{**CALL, "index": 0}],
        "reasoning_content": "because",
    }
    assert message(dumped) == {
        "role": "assistant",
        "reasoning_content": "because",
        "tool_calls": [CALL],
    }


def test_an_assistant_message_without_anything_is_empty_text() -> None:
    assert message({"role": "assistant"}) == {"role": "assistant", "content": ""}


def test_a_tool_answer_keeps_the_call_it_answers() -> None:
    answer = tool_answer("call_t_0")
    sent = parsed(messages=[ASKED_TOOL, answer]).messages
    assert orjson.loads(sent[1]) == answer


def test_calls_may_be_answered_in_any_order_but_not_behind_what_another_says() -> None:
    calls = {"role": "assistant", "tool_calls": [CALL, {**CALL, "id": "call_t_1"}]}
    last, first = tool_answer("call_t_1"), tool_answer("call_t_0")
    assert len(parsed(messages=[calls, last, first, USER]).messages) == 4
    for role in ("user", "system", "developer"):
        between = {"role": role, "content": "wait"}
        for history in ([calls, between, last, first], [calls, last, between, first]):
            error = refusal(messages=history)
            assert error.param == "messages" and "did not have response messages" in error.message
            assert error.message.endswith("call_t_0, call_t_1" if history[1] is between else "_0")


@pytest.mark.parametrize(
    "before",
    [
        [],
        [USER],
        [{"role": "assistant", "content": "so"}],
        [{"role": "user", "content": "x", "tool_calls": [CALL]}],
        [{"role": "assistant", "tool_calls": [{**CALL, "id": "call_t_1"}]}],
        [ASKED_TOOL, tool_answer("call_t_0"), {"role": "assistant", "content": "so"}],
    ],
)
def test_a_tool_answer_without_its_call_is_refused(before: list[Any]) -> None:
    error = refusal(messages=[*before, tool_answer("call_t_0")])
    assert error.param == f"messages[{len(before)}].tool_call_id"
    assert "'call_t_0'" in error.message


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ("text", "messages[0]"),
        ({"content": "x"}, "messages[0].role"),
        ({"role": "robot", "content": "x"}, "messages[0].role"),
        ({"role": ["user"], "content": "x"}, "messages[0].role"),
        ({"role": "user"}, "messages[0].content"),
        ({"role": "user", "content": 1}, "messages[0].content"),
        ({"role": "user", "content": [1]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0]"),
        ({"role": "user", "content": "x", "name": 1}, "messages[0].name"),
        ({"role": "tool", "content": "x"}, "messages[0].tool_call_id"),
        ({"role": "assistant", "tool_calls": "x"}, "messages[0].tool_calls"),
        ({"role": "assistant", "tool_calls": [{}]}, "messages[0].tool_calls[0]"),
        ({"role": "assistant", "function_call": {}}, "messages[0].function_call"),
    ],
)
def test_a_wrong_message_is_named(wrong: Any, param: str) -> None:
    assert refusal(messages=[wrong]).param == param


def test_tools_keep_the_order_of_their_members_which_templates_show() -> None:
    sent = {
        "type": "function",
        "function": {"strict": True, "parameters": {"b": 1, "a": 2}, "name": "f"},
    }
    expected = b'[{"type":"function","function":{"name":"f","parameters":{"b":1,"a":2}}}]'
    assert parsed(tools=[sent]).tools == expected


@pytest.mark.parametrize(
    "tool",
    [
        {},
        {"type": "custom"},
        {"type": "function", "function": {}},
        {"type": "function", "function": {"name": ""}},
        {"type": "function", "function": {"name": "f", "parameters": []}},
        {"type": "function", "function": {"name": "f", "description": 1}},
    ],
)
def test_a_wrong_tool_is_named(tool: Any) -> None:
    assert (refusal(tools=[TOOL, tool]).param or "").startswith("tools[1]")
