"""Streams whose clients read them by lines of text, at which more characters end a line."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.producers.gateway.calls.streamed import StreamedAnswer
from seamlessflow.producers.gateway.dialects.dialect import event, on_one_line, turn_of
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.producers.gateway.routes import DIALECTS
from tests.builders.gateway.bodies import BODIES
from tests.builders.records import replies

ENDS = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\r\n"
IDS_ALONE = "/inference/v1/generate"
TEXT = f"“a”{ENDS}b\u2029"
STREAMING = [path for path in DIALECTS if ":generate" not in path and path != IDS_ALONE]
texts = st.text(max_size=20) | st.text(ENDS + "a\u2027", max_size=6)


def streamed(path: str) -> bytes:
    """Return a stream with such characters in its text, its thought, a call and an error."""
    dialect = DIALECTS[path]
    asked = dialect.parse(orjson.dumps({**BODIES[path], "stream": True}), 4)
    arguments = f'{{\r\n"a": {orjson.dumps(TEXT).decode()}}}'
    call = {"id": "call_t_0", "function": {"name": "f", "arguments": arguments}}
    whole: dict[str, Any] = {"reasoning_content": TEXT, "content": TEXT}
    if path != "/v1/completions":
        whole["tool_calls"] = [{"index": 0, **call}]
    answer = StreamedAnswer(asked, lambda turn: dialect.events(turn, 1, asked), dialect.waiting)
    parts = [
        answer.write_reply(choice, reply)
        for choice in range(asked.choices)
        for reply in (
            replies.delta(token_count=1, delta=orjson.dumps(whole)),
            replies.answer(TEXT, message={"tool_calls": [call]}, token_offset=1),
        )
    ]
    return b"".join(parts) + answer.failed(ApiError(500, TEXT, param=TEXT), "t")


@pytest.mark.parametrize("path", STREAMING)
def test_an_event_is_a_line_to_each_reader(path: str) -> None:
    data = streamed(path).decode()
    lines = data.splitlines()
    assert lines == data.removesuffix("\n").split("\n")
    events = [line.removeprefix("data: ") for line in lines if line.startswith("data: {")]
    assert all(isinstance(orjson.loads(content), dict) for content in events)
    shown = {name for name in ENDS if orjson.dumps(name).decode()[1:-1] in data}
    escaped = {name for name in "\x85\u2028\u2029" if f"\\u{ord(name):04x}" in data}
    assert shown | escaped == set(ENDS)


@given(st.recursive(texts, lambda inner: st.lists(inner) | st.dictionaries(texts, inner)))
def test_an_event_holds_what_was_put_in(value: Any) -> None:
    for body in (orjson.dumps(value), orjson.dumps(value, option=orjson.OPT_INDENT_2)):
        written = on_one_line(body)
        assert len(written.decode().splitlines()) <= 1
        assert orjson.loads(written) == value
        kind, data, *_ = event(body, "said").split(b"\n")
        assert (kind, data) == (b"event: said", b"data: " + written)


@pytest.mark.parametrize(
    "response_id", ["chatcmpl-a1.2", "cmpl-a1.2", "msg_a1.2", "resp_a1.2", "a1.2"]
)
def test_a_response_of_any_dialect_names_its_turn(response_id: str) -> None:
    assert turn_of(response_id) == "a1.2"
