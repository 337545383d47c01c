"""Conversations of files that other tools wrote, by the forms that these document."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from seamlessflow.recorded.importing.conversations.conversation import ForeignConversation
from seamlessflow.recorded.importing.conversations.reading import read, reader_of
from seamlessflow.recorded.importing.foreign_row import ForeignRowRejected

USER: dict[str, Any] = {"role": "user", "content": "5 + 4?"}
CALL: dict[str, Any] = {
    "id": "c1",
    "type": "function",
    "function": {"name": "add", "arguments": '{"a":5,"b":4}'},
}
CALLING: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": [CALL]}
RESULT: dict[str, Any] = {"role": "tool", "tool_call_id": "c1", "content": "9"}
ANSWER: dict[str, Any] = {"role": "assistant", "content": "It is 9."}
TALK = [USER, CALLING, RESULT, ANSWER]


def written(directory: Path, *values: Any, whole: bool = False) -> Path:
    """Write values as a line each, or the only one as a whole file."""
    path = directory / "file.jsonl"
    lines = [orjson.dumps(value, option=orjson.OPT_INDENT_2 if whole else 0) for value in values]
    path.write_bytes(b"\n".join(lines))
    return path


def conversations(path: Path) -> list[ForeignConversation]:
    reader = reader_of(path)
    assert reader is not None
    made = list(read(path, reader))
    assert all(isinstance(item, ForeignConversation) for item in made)
    return made  # type: ignore[return-value]


def spoken(conversation: ForeignConversation) -> list[tuple[Any, ...]]:
    """Return role, text, calls and weight of each message, as far as it has them."""
    return [
        tuple(
            message[name]
            for name in ("role", "content", "tool_calls", "weight")
            if message.get(name, "") != ""
        )
        for message in conversation.messages
    ]


def span(sent: Any, answer: Any, start: int, trace: str = "t") -> dict[str, Any]:
    """Return a span, with its messages as the conventions have them."""
    values = {
        "gen_ai.input.messages": orjson.dumps(sent).decode(),
        "gen_ai.output.messages": orjson.dumps([answer]).decode(),
        "gen_ai.system_instructions": '[{"type":"text","content":"Be brief."}]',
        "gen_ai.tool.definitions": '[{"type":"function","name":"add","parameters":{}}]',
        "gen_ai.request.model": "m",
    }
    named = [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]
    counted = {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "5"}}
    return {
        "traceId": trace,
        "startTimeUnixNano": str(start),
        "attributes": [*named, counted],
    }


def export_of(*spans: Any) -> dict[str, Any]:
    return {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}


def part(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


def test_lines_of_chat_are_taken_as_they_are(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "add", "parameters": {}}}]
    path = written(
        tmp_path, {"messages": TALK, "tools": tools, "id": "a"}, {"messages": [USER, ANSWER]}
    )
    first, second = conversations(path)
    assert (first.source, first.messages, first.tools) == ("chat", TALK, tools)
    assert (first.session_id, second.session_id) == ("a", "")


def test_rows_of_tokens_are_no_conversations(tmp_path: Path) -> None:
    assert reader_of(written(tmp_path, {"token_ids": [1, 2], "mask": [0, 1]})) is None
    assert reader_of(written(tmp_path)) is None


@pytest.mark.parametrize("whole", [False, True], ids=["lines", "whole"])
def test_spans_of_a_trace_are_one_conversation(tmp_path: Path, whole: bool) -> None:
    asked = part("user", {"type": "text", "content": "5 + 4?"})
    called = part(
        "assistant",
        {"type": "tool_call", "id": "c1", "name": "add", "arguments": {"a": 5, "b": 4}},
    )
    result = part("tool", {"type": "tool_call_response", "id": "c1", "response": "9"})
    said = part("assistant", {"type": "text", "content": "It is 9."})
    later = span([asked, called, result], said, 2)
    path = written(tmp_path, export_of(later, span([asked], called, 1)), whole=whole)
    (talk,) = conversations(path)
    assert (talk.source, talk.model, talk.session_id) == ("opentelemetry", "m", "t")
    assert spoken(talk) == [
        ("system", "Be brief."),
        ("user", "5 + 4?"),
        ("assistant", [CALL]),
        ("tool", "9"),
        ("assistant", "It is 9."),
    ]
    assert talk.tools == [
        {"type": "function", "function": {"name": "add", "parameters": {}}},
    ]


def test_a_span_without_messages_is_passed_over(tmp_path: Path) -> None:
    asked = part("user", {"type": "text", "content": "x"})
    said = part("assistant", {"type": "text", "content": "y"})
    path = written(tmp_path, export_of({"traceId": "t", "attributes": []}, span([asked], said, 1)))
    assert len(conversations(path)) == 1


def test_a_part_that_is_no_text_is_named(tmp_path: Path) -> None:
    asked = part("user", {"type": "blob", "content": "x"})
    path = written(tmp_path, export_of(span([asked], part("assistant"), 1)))
    with pytest.raises(ForeignRowRejected, match="type 'blob'"):
        conversations(path)


@pytest.mark.parametrize("as_text", [False, True], ids=["values", "texts"])
def test_generations_of_langfuse_are_conversations_by_trace(tmp_path: Path, as_text: bool) -> None:
    def made(sent: Any, answer: Any, start: str) -> dict[str, Any]:
        values = {"input": {"messages": sent}, "output": answer}
        if as_text:
            values = {name: orjson.dumps(value).decode() for name, value in values.items()}
        common = {"id": start, "traceId": "t", "type": "GENERATION", "model": "m"}
        return {**common, "startTime": start, **values}

    lines = [made([USER], CALLING, "1"), made(TALK[:3], ANSWER, "2")]
    other = {"id": "s", "traceId": "t", "type": "SPAN", "startTime": "0"}
    (talk,) = conversations(written(tmp_path, other, *lines))
    assert (talk.source, talk.messages) == ("langfuse", TALK)


def test_calls_that_litellm_logged_are_conversations_by_trace(tmp_path: Path) -> None:
    def made(trace: str, sent: Any, answer: Any) -> dict[str, Any]:
        response = {"choices": [{"message": {**answer, "function_call": None}}]}
        return {"id": "x", "trace_id": trace, "messages": sent, "response": response, "model": "m"}

    path = written(
        tmp_path,
        made("t", [USER], CALLING),
        made("u", [USER], ANSWER),
        made("t", TALK[:3], ANSWER),
        {"messages": [USER], "response": {}},
    )
    first, second = conversations(path)
    assert (first.messages, second.messages) == ([USER, ANSWER], TALK) or (
        second.messages,
        first.messages,
    ) == ([USER, ANSWER], TALK)


def test_an_answer_that_no_logged_call_gave_is_not_learned(tmp_path: Path) -> None:
    shown = [{"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "2"}, USER]
    response = {"choices": [{"message": ANSWER}]}
    (talk,) = conversations(written(tmp_path, {"messages": shown, "response": response}))
    assert [message.get("weight") for message in talk.messages] == [None, 0, None, None]


def test_a_line_of_a_form_that_the_rest_does_not_have_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, {"messages": [USER, ANSWER]}, {"prompt": "x"})
    with pytest.raises(ForeignRowRejected) as raised:
        conversations(path)
    assert raised.value.row == 2 and "no list of messages" in str(raised.value)


@pytest.mark.parametrize("content", [b'{"messages": [', b'{"messages": []}\n3'])
def test_what_is_no_json_object_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file.jsonl"
    path.write_bytes(content)
    with pytest.raises(ForeignRowRejected):
        reader_of(path)
        conversations(path)
