from typing import Any

import pytest

from tests.builders.gateway.openai_responses import OUTPUT, USER, call, messages, parsed, refusal


@pytest.mark.parametrize(
    "item",
    [
        USER,
        {"type": "message", **USER},
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"role": "user", "content": [{"type": "input_text", "text": t} for t in "hi"]},
        {"id": "msg_1", "status": "completed", "type": "message", **USER},
    ],
)
def test_a_message_is_the_same_however_it_is_spelt(item: Any) -> None:
    assert parsed(input=[item]).messages == parsed(input="hi").messages


def test_items_of_one_turn_are_one_assistant_message() -> None:
    thought = {"type": "reasoning", "summary": [], "content": [{"type": "x", "text": "hm"}]}
    said = {"role": "assistant", "content": [{"type": "output_text", "text": "wait"}]}
    outputs = [OUTPUT, {**OUTPUT, "call_id": "call_t_1"}]
    read = messages(USER, thought, said, call(), call(number=1), *outputs)
    assert [message["role"] for message in read] == ["user", "assistant", "tool", "tool"]
    assert read[1]["reasoning_content"] == "hm"
    assert read[1]["content"] == "wait"
    assert [made["id"] for made in read[1]["tool_calls"]] == ["call_t_0", "call_t_1"]
    assert read[2] == {"role": "tool", "tool_call_id": "call_t_0", "content": "42"}


def test_messages_of_the_assistant_without_ids_stay_apart() -> None:
    said = {"role": "assistant", "content": "a"}
    assert messages(said, said) == [said, said]


def test_calls_of_two_turns_stay_apart() -> None:
    outputs = [OUTPUT, {**OUTPUT, "call_id": "call_u_0"}]
    first, second, *_ = messages(call("t"), call("u"), *outputs)
    assert first["tool_calls"][0]["id"] == "call_t_0"
    assert second["tool_calls"][0]["id"] == "call_u_0"


def test_an_answer_between_two_calls_of_one_turn_does_not_part_them() -> None:
    read = messages(call(), OUTPUT, call(number=1), {**OUTPUT, "call_id": "call_t_1"})
    assert [message["role"] for message in read] == ["assistant", "tool", "tool"]


def test_without_our_ids_an_answer_ends_the_message() -> None:
    other = {"type": "function_call", "call_id": "x", "name": "f", "arguments": "{}"}
    read = messages(other, {**OUTPUT, "call_id": "x"}, {**other, "call_id": "y"})
    assert [message["role"] for message in read] == ["assistant", "tool", "assistant"]


@pytest.mark.parametrize(
    "item",
    [
        {"summary": [], "encrypted_content": "gAAAAABo"},
        {"summary": [{"type": "summary_text", "text": "s"}], "encrypted_content": "gAAAAABo"},
        {"summary": []},
    ],
)
def test_reasoning_that_nobody_here_can_read_is_left_out(item: Any) -> None:
    assert messages(USER, {"type": "reasoning", "id": "rs_1", **item}, USER) == [USER, USER]


def test_a_summary_stands_for_reasoning_that_came_with_nothing_else() -> None:
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    assert messages(USER, thought)[1]["reasoning_content"] == "hm"


@pytest.mark.parametrize(
    ("output", "content"),
    [
        ("42", "42"),
        (None, ""),
        ([], ""),
        ([{"type": "input_text", "text": "4"}, {"type": "output_text", "text": "2"}], "42"),
    ],
)
def test_the_output_of_a_tool_is_text(output: Any, content: str) -> None:
    _, message = messages(call(), {**OUTPUT, "output": output})
    assert message["content"] == content


def test_outputs_may_come_in_any_order_and_long_behind_their_calls() -> None:
    second = {**OUTPUT, "call_id": "call_t_1"}
    said = {"role": "assistant", "content": "wait", "id": "msg_u_0"}
    assert len(messages(call(), call(number=1), said, USER, second, OUTPUT)) == 5


@pytest.mark.parametrize("before", [[], [USER], [call(number=1)]])
@pytest.mark.parametrize("kind", ["function_call_output", "custom_tool_call_output"])
def test_an_output_without_its_call_is_refused(kind: str, before: list[Any]) -> None:
    error = refusal(input=[*before, {**OUTPUT, "type": kind}, call()])
    assert error.param == f"input[{len(before)}].call_id"
    assert "'call_t_0'" in error.message


def named(*ids: str) -> list[Any]:
    return [{"type": "item_reference", "id": name} for name in ids]


def test_items_that_are_named_stand_for_the_answer_of_their_turn() -> None:
    second = {**OUTPUT, "call_id": "call_t_1"}
    read = messages(USER, *named("rs_t_0", "msg_t_1", "fc_t_2", "ctc_t_3~e30="), OUTPUT, second)
    assert read[1] == {"$turn": "t"}
    assert [message["role"] for message in (read[0], *read[2:])] == ["user", "tool", "tool"]


def test_the_type_of_a_named_item_may_be_left_out() -> None:
    typed = messages(USER, *named("msg_t_0"), USER)
    assert messages(USER, {"id": "msg_t_0"}, USER) == typed
    assert messages(USER, {"id": "msg_t_0", "type": None}, USER) == typed


def test_what_is_sent_beside_a_named_item_goes_with_it() -> None:
    said = {"role": "assistant", "content": "wait"}
    read = messages(USER, *named("rs_t_0"), said, call(), OUTPUT, *named("msg_u_0"), USER)
    assert read[1]["$turn"] == "t" and read[1]["content"] == "wait"
    assert [made["id"] for made in read[1]["tool_calls"]] == ["call_t_0"]
    assert read[3] == {"$turn": "u"}


def test_an_output_for_a_call_of_another_turn_than_the_named_one_is_refused() -> None:
    error = refusal(input=[*named("fc_u_0"), OUTPUT])
    assert error.param == "input[1].call_id"


def test_a_shell_call_and_its_output_are_a_call_and_its_answer() -> None:
    action: dict[str, Any] = {"type": "exec", "command": ["ls"], "env": {}, "timeout_ms": None}
    asked = {"type": "local_shell_call", "id": "lsh_1", "call_id": "c", "action": action}
    output = {"type": "local_shell_call_output", "id": "c", "output": "a.txt"}
    made, answer = messages(asked, output)
    assert made["tool_calls"][0]["function"] == {
        "name": "local_shell",
        "arguments": '{"command": ["ls"]}',
    }
    assert answer["tool_call_id"] == "c"


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ("text", "input[0]"),
        ({}, "input[0].type"),
        ({"type": "web_search_call", "id": "x"}, "input[0].type"),
        ({"type": "compaction", "encrypted_content": "x"}, "input[0].type"),
        ({"type": ["message"]}, "input[0].type"),
        ({"type": "item_reference", "id": "x"}, "input[0].id"),
        ({"type": "item_reference", "id": "msg_"}, "input[0].id"),
        ({"type": "item_reference"}, "input[0].id"),
        ({"id": "x"}, "input[0].id"),
        ({"id": "msg_t_0", "content": "x"}, "input[0].type"),
        ({"role": "tool", "content": "x"}, "input[0].role"),
        ({"role": ["user"], "content": "x"}, "input[0].role"),
        ({"role": "user"}, "input[0].content"),
        ({"role": "user", "content": [1]}, "input[0].content[0]"),
        ({"role": "user", "content": [{"type": "input_text"}]}, "input[0].content[0]"),
        (call(arguments={}), "input[0].arguments"),
        (call(call_id=""), "input[0].call_id"),
        (call(name=None), "input[0].name"),
        ({"type": "custom_tool_call", "call_id": "c", "name": "patch"}, "input[0].input"),
        ({"type": "local_shell_call", "call_id": "c", "action": []}, "input[0].action"),
        ({**OUTPUT, "call_id": None}, "input[0].call_id"),
        ({**OUTPUT, "output": 42}, "input[0].output"),
        ({"type": "additional_tools", "tools": {}}, "input[0].tools"),
    ],
)
def test_a_wrong_item_is_named(item: Any, param: str) -> None:
    assert refusal(input=[item]).param == param


@pytest.mark.parametrize("kind", ["input_image", "input_file", "input_audio"])
@pytest.mark.parametrize("place", ["content", "output"])
def test_what_is_not_text_is_refused_clearly(kind: str, place: str) -> None:
    parts = [{"type": "input_text", "text": "a"}, {"type": kind, "file_id": "x"}]
    item = {"role": "user", "content": parts} if place == "content" else {**OUTPUT, place: parts}
    error = refusal(input=[item])
    assert error.param == f"input[0].{place}[1]"
    assert kind in error.message and "text only" in error.message


@pytest.mark.parametrize("kind", ["custom_tool_call_output", "local_shell_call_output"])
def test_what_is_not_text_is_refused_in_what_any_tool_put_out(kind: str) -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}
    error = refusal(input=[{"type": kind, "call_id": "call_t_0", "output": [image]}])
    assert (error.param, "text only" in error.message) == ("input[0].output[0]", True)
