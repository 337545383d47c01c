"""Answers of a scripted policy, and examples of schemas."""

import json
from typing import Any

import jsonschema
import pytest

from seamlessflow.tryout.policy import ScriptedPolicy, example
from tests.builders.gateway.bodies import SCHEMA
from tests.builders.gateway.openai_chat import parsed

OTHER = {"type": "function", "function": {"name": "other"}}
LOOKUP = {"type": "function", "function": {"name": "lookup", "parameters": SCHEMA}}


def names(policy: ScriptedPolicy, count: int, **request: Any) -> list[str]:
    """Return the functions that so many answers call; an empty name is a text."""
    answers = [policy.answer(parsed(**request)) for _ in range(count)]
    calls = [answer.get("tool_calls") or [{"function": {"name": ""}}] for answer in answers]
    return [called["function"]["name"] for [called] in calls]


def test_words_are_said_in_turn_and_the_last_again_and_again() -> None:
    policy = ScriptedPolicy(("first", "then"))
    said = [policy.answer(parsed())["content"] for _ in range(3)]
    assert said == ["first", "then", "then"]


def test_offered_tools_are_called_in_turn_before_a_text() -> None:
    assert names(ScriptedPolicy(), 4, tools=[LOOKUP, OTHER]) == ["lookup", "other", "", ""]
    assert names(ScriptedPolicy(), 4, tools=[LOOKUP]) == ["lookup", "lookup", "", ""]


def test_a_forced_choice_is_obeyed() -> None:
    forced = {"type": "function", "function": {"name": "other"}}
    tools = [LOOKUP, OTHER]
    assert names(ScriptedPolicy(), 1, tools=tools, tool_choice=forced) == ["other"]
    assert names(ScriptedPolicy(), 1, tools=tools, tool_choice="none") == [""]
    assert names(ScriptedPolicy(), 6, tools=[LOOKUP], tool_choice="required") == ["lookup"] * 6


def test_a_schema_of_the_answer_is_obeyed() -> None:
    wanted = {"type": "json_schema", "json_schema": {"schema": {**SCHEMA, "required": ["a"]}}}
    assert json.loads(ScriptedPolicy().answer(parsed(response_format=wanted))["content"]) == {
        "a": 1
    }


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}}},
        {
            "type": "object",
            "required": ["a", "b", "c", "d"],
            "properties": {
                "a": {"type": "integer", "minimum": 3},
                "b": {"enum": ["x", "y"]},
                "c": {"anyOf": [{"type": "array", "minItems": 2, "items": {"type": "string"}}]},
                "d": {"$ref": "#/$defs/point"},
            },
            "$defs": {"point": {"type": "object", "properties": {"x": {"const": 7}}}},
        },
        {"type": ["null", "boolean"]},
        {"type": "string"},
        {},
    ],
)
def test_an_example_obeys_its_schema(schema: dict[str, Any]) -> None:
    jsonschema.validate(example(schema), schema)


def test_a_schema_that_refers_to_itself_has_an_end() -> None:
    schema = {"required": ["next"], "properties": {"next": {"$ref": "#"}}}
    assert "next" in example(schema)
