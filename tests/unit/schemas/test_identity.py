from typing import Any

import orjson

from seamlessflow.schemas.identity import (
    is_reference,
    referenced_turn,
    resolved,
    turn_reference,
)

SAMPLED: dict[str, Any] = {
    "content": None,
    "reasoning_content": "hm",
    "role": "assistant",
    "tool_calls": [
        {"id": f"call_t_{n}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        for n in range(2)
    ],
}


def canonical(value: object) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def test_a_reference_alone_stands_for_the_answer_to_the_byte() -> None:
    reference = canonical(turn_reference("t", {}))
    assert is_reference(reference) and referenced_turn(reference) == "t"
    assert resolved(reference, canonical(SAMPLED)) == canonical(SAMPLED)


def test_what_was_sent_counts_and_the_rest_is_as_sampled() -> None:
    changed = {**SAMPLED["tool_calls"][1], "function": {"name": "f", "arguments": '{"a":1}'}}
    reference = canonical(turn_reference("t", {"content": "so", "tool_calls": [changed]}))
    assert orjson.loads(resolved(reference, canonical(SAMPLED))) == {
        **SAMPLED,
        "content": "so",
        "tool_calls": [SAMPLED["tool_calls"][0], changed],
    }


def test_a_message_that_speaks_of_a_reference_is_none() -> None:
    for content in ('{"$turn":"t"}', "$turn"):
        assert not is_reference(canonical({"content": content, "role": "user"}))
