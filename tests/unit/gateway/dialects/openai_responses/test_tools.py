from typing import Any

import orjson
import pytest

from seamlessflow.producers.gateway.dialects.openai_chat.request import parse as parse_chat
from seamlessflow.schemas.records import Sampling
from tests.builders.gateway.openai_responses import USER, functions, parsed, refusal

TOOL = {"type": "function", "name": "lookup", "parameters": {"type": "object"}, "strict": True}
PATCH = {"type": "custom", "name": "patch", "description": "Edits files."}
GROUP = {"type": "namespace", "name": "team", "description": "Helpers.", "tools": [TOOL, PATCH]}


def test_tools_look_to_the_model_as_in_a_chat_request() -> None:
    function = {name: TOOL[name] for name in ("name", "parameters")}
    chat = {"model": "m", "messages": [USER], "tools": [{"type": "function", "function": function}]}
    assert parsed(tools=[TOOL]).tools == parse_chat(orjson.dumps(chat), 4).tools


def test_a_custom_tool_is_a_function_with_one_text() -> None:
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: line"}
    (function,) = functions(parsed(tools=[{**PATCH, "format": grammar}]))
    assert (function["name"], function["description"]) == ("patch", "Edits files.")
    assert function["parameters"]["required"] == ["input"]
    assert "start: line" in function["parameters"]["properties"]["input"]["description"]


def test_tools_of_a_namespace_bear_its_name_and_are_described_with_it_once() -> None:
    first, second = functions(parsed(tools=[GROUP]))
    assert (first["name"], second["name"]) == ("team__lookup", "team__patch")
    assert (first["description"], second["description"]) == ("Helpers.", "Edits files.")


def test_tools_that_come_with_the_input_are_the_requests() -> None:
    brought = {"type": "additional_tools", "role": "developer", "tools": [TOOL, GROUP]}
    request = parsed(input=[brought, USER])
    assert (request.tools, request.messages) == (
        parsed(tools=[TOOL, GROUP]).tools,
        parsed(input=[USER]).messages,
    )
    assert parsed(input=[brought, brought, USER], tools=[TOOL]).tools == request.tools


@pytest.mark.parametrize("kind", ["web_search", "image_generation", "tool_search"])
def test_what_codex_sends_unasked_is_not_offered(kind: str) -> None:
    request = parsed(tools=[{"type": kind}, TOOL])
    assert request.tools == parsed(tools=[TOOL]).tools
    assert parsed(tools=[{"type": kind}]).tools is None


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ("lookup", "tools[1]"),
        ({}, "tools[1]"),
        ({"type": "function"}, "tools[1].name"),
        ({"type": "custom", "name": ""}, "tools[1].name"),
        ({"type": "function", "name": "f", "parameters": []}, "tools[1].parameters"),
        ({"type": "function", "name": "f", "description": 1}, "tools[1].description"),
        ({"type": "custom", "name": "lookup"}, "tools[1].name"),
        ({"type": "namespace", "name": "n"}, "tools[1]"),
        ({"type": "namespace", "name": "n", "tools": {}}, "tools[1].tools"),
        ({"type": "namespace", "name": "n", "tools": [GROUP]}, "tools[1].tools[0].tools[0]"),
        ({"type": "namespace", "name": "n", "tools": [{"type": "mcp"}]}, "tools[1].tools[0]"),
        ({"type": "mcp", "server_label": "x"}, "tools[1].type"),
        ({"type": "file_search"}, "tools[1].type"),
        ({"type": "code_interpreter"}, "tools[1].type"),
        ({"type": "computer"}, "tools[1].type"),
    ],
)
def test_a_wrong_tool_is_named(tool: Any, param: str) -> None:
    assert refusal(tools=[TOOL, tool]).param == param


@pytest.mark.parametrize(
    ("choice", "read"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ({"type": "function", "name": "lookup"}, "lookup"),
        ({"type": "function", "name": "lookup", "namespace": "team"}, "team__lookup"),
        ({"type": "custom", "name": "patch"}, "team__patch"),
    ],
)
def test_tool_choice_is_a_word_or_a_tool(choice: Any, read: str) -> None:
    assert parsed(tools=[TOOL, GROUP], tool_choice=choice).tool_choice == read


def test_only_tools_that_are_allowed_are_shown() -> None:
    allowed = [{"type": "custom", "name": "patch"}]
    choice = {"type": "allowed_tools", "mode": "required", "tools": allowed}
    request = parsed(tools=[TOOL, PATCH], tool_choice=choice)
    assert request.tool_choice == "required"
    assert request.tools == parsed(tools=[PATCH]).tools


@pytest.mark.parametrize(
    ("choice", "param"),
    [
        ("maybe", "tool_choice"),
        ({"type": "function", "name": "other"}, "tool_choice"),
        ({"type": "file_search"}, "tool_choice"),
        ({"type": "allowed_tools", "mode": "auto", "tools": []}, "tool_choice.tools"),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{}]}, "tool_choice.tools[0]"),
    ],
)
def test_a_choice_that_is_not_offered_is_named(choice: Any, param: str) -> None:
    assert refusal(tools=[TOOL], tool_choice=choice).param == param


def test_a_forced_choice_needs_tools() -> None:
    assert refusal(tool_choice="required").param == "tool_choice"
    assert parsed(tools=[], tool_choice="none").tool_choice == "auto"


def test_an_agent_may_ask_for_one_tool_call_at_most() -> None:
    request = parsed(parallel_tool_calls=False)
    assert request.sampling == Sampling(one_tool_call=True)
    assert request.echoed["parallel_tool_calls"] is False
    assert refusal(parallel_tool_calls=0).param == "parallel_tool_calls"
