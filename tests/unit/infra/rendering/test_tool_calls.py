import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seamlessflow.infra.rendering.tool_calls import MalformedCall, ToolCall, read_call

unhurried = settings(deadline=None, max_examples=100)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@unhurried
@given(
    st.dictionaries(st.text(), json_values, max_size=4),
    json_values,
    st.sampled_from([None, 1, "\t"]),
)
def test_arguments_keep_the_spelling_they_were_sampled_with(
    others: dict[str, object], arguments: object, indent: int | str | None
) -> None:
    block = {**others, "arguments": arguments, "name": "act"}
    raw = json.dumps(block, indent=indent)
    call = read_call("act", arguments, raw, None)
    assert call.arguments in raw
    assert json.loads(call.arguments) == arguments


def test_spaces_and_order_of_arguments_stay() -> None:
    raw = '{"arguments": {"b":1,  "a": [ 2 ]}, "name": "act"}'
    call = read_call("act", {"b": 1, "a": [2]}, raw, "id-1")
    assert call == ToolCall("act", '{"b":1,  "a": [ 2 ]}', "id-1")


def test_of_two_arguments_the_last_counts() -> None:
    raw = '{"name": "act", "arguments": {"a": 1}, "arguments": {"a":2}}'
    assert read_call("act", {"a": 2}, raw, None).arguments == '{"a":2}'


def test_arguments_of_a_format_without_json_are_written_as_json() -> None:
    raw = "<function=act><parameter=a>é</parameter></function>"
    assert read_call("act", {"a": "é"}, raw, None).arguments == '{"a": "é"}'


def test_a_call_without_arguments_has_none() -> None:
    assert read_call("act", None, '{"name": "act"}', None).arguments == "{}"
    named = '{"type": "function", "id": "c", "name": "act", "parameters": {}}'
    assert read_call("act", {}, named, "c").arguments == "{}"


@pytest.mark.parametrize("others", ['"parameters": {"a": 1}', '"a": 1', '"args": "b"'])
def test_arguments_under_another_name_make_no_call_without_any(others: str) -> None:
    with pytest.raises(MalformedCall, match="missing_arguments"):
        read_call("act", {}, f'{{"name": "act", {others}}}', None)


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        (5, {}, "missing_name"),
        (" ", {}, "missing_name"),
        (None, {}, "missing_name"),
        ("\ud800", {}, "missing_name"),
        ("act", float("nan"), "invalid_json"),
        ("act", {"a": float("inf")}, "invalid_json"),
        ("act", {"a": "\ud800"}, "invalid_json"),
    ],
)
def test_what_other_programs_could_not_read_is_malformed(
    name: object, arguments: object, reason: str
) -> None:
    with pytest.raises(MalformedCall) as caught:
        read_call(name, arguments, "", None)
    assert caught.value.reason == reason
