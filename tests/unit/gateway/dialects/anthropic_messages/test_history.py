from typing import Any

import pytest

from tests.builders.gateway.anthropic_messages import USE, USER, messages, refusal

CALL = {
    "id": "call_t_0",
    "type": "function",
    "function": {"name": "lookup", "arguments": '{"a": 1}'},
}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}


def result(content: Any = "42", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "call_t_0", "content": content, **more}


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
            result(
                [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
                tool_use_id="call_t_1",
            ),
            {"type": "text", "text": "go on"},
        ],
    }
    assert messages(USER, answer, user)[2:] == [
        {"role": "tool", "tool_call_id": "call_t_0", "content": "42"},
        {"role": "tool", "tool_call_id": "call_t_1", "content": "a\nb"},
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
    results: list[Any] = [{"role": "user", "content": [block]} for block in (second, first)]
    read = messages(USER, answer, mind, *results)
    assert [message.get("tool_call_id") for message in read[-2:]] == ["call_t_0", "call_t_1"]


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
    answered = {"role": "user", "content": [result()]}
    said = messages(USER, {"role": "assistant", "content": [USE]}, answered)[1]
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
