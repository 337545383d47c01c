"""Members of bodies that no dialect reads."""

import json
from typing import Any

import pytest

from seamlessflow.producers.gateway.dialects.sampling_parameters import NOT_DONE
from seamlessflow.producers.gateway.routes import DIALECTS, OPENAI
from seamlessflow.tryout.unread import unread_members
from tests.builders.gateway.bodies import BODIES, CHAT

PLAIN: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def test_what_changes_nothing_is_named_with_its_place() -> None:
    body = {
        **PLAIN,
        "messages": [*PLAIN["messages"], {"role": "user", "content": "go", "weight": 1}],
        "user": "ann",
        "temperature": 0.5,
        "stream_options": {"include_usage": True, "chunked": True},
    }
    assert unread_members(OPENAI, body) == ["messages[].weight", "user", "stream_options.chunked"]


def test_a_value_that_is_the_default_counts_as_read() -> None:
    usual = {"n": 1, "stream": False, "tool_choice": "auto", "temperature": 1, "top_logprobs": 0}
    assert unread_members(OPENAI, {**PLAIN, **usual}) == []


def test_a_member_without_a_value_is_not_sent() -> None:
    assert unread_members(OPENAI, {**PLAIN, "user": None}) == []


def test_members_of_what_is_not_read_are_not_named() -> None:
    assert unread_members(OPENAI, {**PLAIN, "extra": {"a": 1}}) == ["extra"]


def test_a_body_that_is_refused_has_no_unread_members() -> None:
    name = next(iter(NOT_DONE))
    assert unread_members(OPENAI, {**PLAIN, "user": "ann", name: ["x"]}) == []


def test_the_content_of_a_tool_s_schema_is_passed_whole() -> None:
    assert unread_members(OPENAI, CHAT) == ["tools[].function.strict"]


@pytest.mark.parametrize("path", BODIES)
def test_each_dialect_names_an_unknown_member_and_changes_no_body(path: str) -> None:
    body = {**BODIES[path], "unheard_of": 1}
    before = json.dumps(body)
    unread = unread_members(DIALECTS[path], body)
    assert "unheard_of" in unread
    assert not {"model", "messages", "input", "contents", "prompt", "tools"} & set(unread)
    assert json.dumps(body) == before
