"""Keys of messages: the ones that count as the same."""

from typing import Any

import orjson
import pytest

from seamlessflow.consumers.trajectories.sessions.message_keys import (
    Strictness,
    chained,
    message_key,
    shape_key,
)
from tests.builders.records.content import message

SHAPE = shape_key("p", "t", None, None)
USER = message("user", "key 7")
ANSWER = message("assistant", "code 3")


@pytest.mark.parametrize(
    ("strictness", "matches"), [("exact", False), ("arguments", True), ("content", True)]
)
def test_respelt_arguments_match_as_the_policy_wants(strictness: Strictness, matches: bool) -> None:
    def spelt(arguments: str) -> bytes:
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
        return message("assistant", "", tool_calls=[call])

    key = message_key(spelt('{"a": 1, "b": 2}'), strictness)
    respelt = message_key(spelt('{"b":2,"a":1}'), strictness)

    assert (key == respelt) is matches


@pytest.mark.parametrize(
    ("sampled", "sent_back"),
    [
        ('{"a": 1.0, "b": [1e3, true]}', '{"a":1,"b":[1000,true]}'),
        ('{"a": 9007199254740993}', '{"a":9007199254740992}'),
        ('{"a": 1e21, "b": -0.0}', '{"a":1e+21,"b":0}'),
        ('{"a": ' * 300 + "1" + "}" * 300, '{"a": ' * 300 + "1" + "}" * 300),
    ],
)
def test_arguments_that_went_through_javascript_match(sampled: str, sent_back: str) -> None:
    def calling(arguments: str) -> bytes:
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
        return message("assistant", "", tool_calls=[call])

    keys = {message_key(calling(arguments), "arguments") for arguments in (sampled, sent_back)}
    assert len(keys) == 1


def test_an_answer_may_be_known_by_its_calls_ids_alone() -> None:
    def called(arguments: str, *ids: str) -> bytes:
        function = {"name": "f", "arguments": arguments}
        calls = [{"id": call_id, "type": "function", "function": function} for call_id in ids]
        return message("assistant", None, tool_calls=calls)

    sampled = message_key(called("{}", "call_t_0"), "ids")

    assert message_key(called('{"filled":"in"}', "call_t_0"), "ids") == sampled
    assert message_key(called("{}", "call_u_0"), "ids") != sampled
    assert message_key(called("{}", "call_t_0", "call_t_1"), "ids") != sampled
    foreign = [message_key(called(arguments, "foreign"), "ids") for arguments in ("{}", "[]")]
    assert foreign[0] != foreign[1]


def test_dropped_reasoning_matches_unless_exact() -> None:
    thought = message("assistant", "x", reasoning_content="because")
    bare = message("assistant", "x")

    assert message_key(thought, "arguments") == message_key(bare, "arguments")
    assert message_key(thought, "exact") != message_key(bare, "exact")


def test_an_absent_content_equals_an_empty_one() -> None:
    assert message_key(message("assistant", None), "exact") == message_key(
        orjson.dumps({"content": "", "role": "assistant"}), "exact"
    )


def test_a_history_s_key_depends_on_the_order_of_its_messages() -> None:
    question, answer = message_key(USER, "exact"), message_key(ANSWER, "exact")

    assert chained(chained(SHAPE, question), answer) != chained(chained(SHAPE, answer), question)


CALL = {"id": "call_t_0", "type": "function", "function": {"name": "f", "arguments": "{}"}}
SAID = {"content": "I look it up", "role": "assistant", "tool_calls": [CALL]}


def as_sent(answer: dict[str, Any], strictness: Strictness = "arguments") -> bytes:
    return message_key(orjson.dumps(answer, option=orjson.OPT_SORT_KEYS), strictness)


@pytest.mark.parametrize(
    ("sampled", "sent_back"),
    [
        (SAID, {**SAID, "content": ""}),
        (SAID, {**SAID, "content": None}),
        (SAID, {"role": "assistant", "tool_calls": [CALL]}),
        (SAID, {**SAID, "name": "agent"}),
        ({"role": "assistant", "content": "3"}, {"role": "assistant", "content": "3", "name": "a"}),
        ({"role": "assistant", "content": "3"}, {"role": "assistant", "content": " 3\n"}),
        ({"role": "assistant", "content": ""}, {"role": "assistant", "content": "\n"}),
    ],
)
def test_what_clients_drop_or_add_is_the_same_answer_unless_exact(
    sampled: dict[str, Any], sent_back: dict[str, Any]
) -> None:
    compared: tuple[Strictness, ...] = ("arguments", "ids")
    for strictness in compared:
        key = as_sent(sampled, strictness)
        assert as_sent(sent_back, strictness) == key
    exact = as_sent(sampled, "exact")
    assert as_sent(sent_back, "exact") != exact


@pytest.mark.parametrize(
    "other",
    [
        {"role": "assistant", "content": "3 4"},
        {"role": "user", "content": "34"},
        {"role": "assistant", "content": "34", "tool_calls": [CALL]},
    ],
)
def test_another_answer_is_another(other: dict[str, Any]) -> None:
    assert as_sent(other) != as_sent({"role": "assistant", "content": "34"})


@pytest.mark.parametrize("role", ["user", "system", "tool"])
def test_what_the_prompt_shows_of_others_counts(role: str) -> None:
    plain = as_sent({"role": role, "content": "a"})
    assert as_sent({"role": role, "content": "a "}) != plain
    assert as_sent({"role": role, "content": "a", "name": "ann"}) != plain
