"""Anthropic's and Google's clients through everything: what they send back extends the turn."""

from typing import Any

import anthropic
import pytest
from google import genai
from google.genai import types

from tests.agents.agent_system import AgentSystem
from tests.agents.engine.scripts import answer, cue

pytestmark = pytest.mark.kafka
ADD: Any = {
    "name": "add",
    "description": "Adds two numbers.",
    "input_schema": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}
SYSTEM: Any = [
    {"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cch={};"},
    {"type": "text", "text": "You add with your tool.", "cache_control": {"type": "ephemeral"}},
]


def asked(messages: list[Any]) -> dict[str, Any]:
    """Send a request with a new billing header, as Claude Code does."""
    billing = {**SYSTEM[0], "text": SYSTEM[0]["text"].format(len(messages))}
    return {
        "model": "policy",
        "system": [billing, SYSTEM[1]],
        "messages": messages,
        "tools": [ADD],
        "thinking": {"type": "adaptive"},
    }


def said(
    client: anthropic.Anthropic, messages: list[Any], *, streamed: bool
) -> anthropic.types.Message:
    if not streamed:
        whole: anthropic.types.Message = client.messages.create(**asked(messages), max_tokens=2000)
        return whole
    with client.messages.stream(**asked(messages), max_tokens=2000) as stream:
        return stream.get_final_message()


def results(message: anthropic.types.Message) -> list[Any]:
    return [
        {"type": "tool_result", "tool_use_id": block.id, "content": str(sum(block.input.values()))}  # type: ignore[arg-type]
        for block in message.content
        if block.type == "tool_use"
    ]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_a_tool_loop_is_one_chain(system: AgentSystem, streamed: bool) -> None:
    session = system.open(f"messages-{'streamed' if streamed else 'whole'}")
    messages: list[Any] = [{"role": "user", "content": f"{cue('adding')}What is 5 + 4, and 1 + 1?"}]
    with anthropic.Anthropic(
        base_url=session.base_url.removesuffix("/v1"), api_key=session.api_key
    ) as client:
        counted = client.messages.count_tokens(**asked(messages)).input_tokens
        message = said(client, messages, streamed=streamed)
        assert message.usage.input_tokens == counted
        while tool_results := results(message):
            assert message.stop_reason == "tool_use"
            messages += [message.to_param(), {"role": "user", "content": tool_results}]
            message = said(client, messages, streamed=streamed)
    assert message.stop_reason == "end_turn"
    assert message.content[-1].type == "text" and message.content[-1].text == answer("adding")
    assert session.end(1.0).match_rules == {"root": 1, "extend": 2}


def parts(chat: Any, message: Any, *, streamed: bool) -> list[types.Part]:
    """Return all parts of the answer to a message."""
    if not streamed:
        whole: list[types.Part] = chat.send_message(message).parts
        return whole
    return [part for event in chat.send_message_stream(message) for part in event.parts or ()]


def responses(answered: list[types.Part]) -> list[Any]:
    """Return the functions' responses without ids, as the vendor's own helper makes them."""
    calls = [part.function_call for part in answered if part.function_call]
    return [
        types.Part.from_function_response(
            name=str(call.name), response={"output": str(sum((call.args or {}).values()))}
        )
        for call in calls
    ]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_a_loop_of_functions_is_one_chain(system: AgentSystem, streamed: bool) -> None:
    session = system.open(f"content-{'streamed' if streamed else 'whole'}")
    declared = types.FunctionDeclaration(
        name=ADD["name"], description=ADD["description"], parameters_json_schema=ADD["input_schema"]
    )
    config = types.GenerateContentConfig(
        system_instruction="You add with your tool.",
        tools=[types.Tool(function_declarations=[declared])],
    )
    options = types.HttpOptions(base_url=session.base_url.removesuffix("/v1"))
    with genai.Client(api_key=session.api_key, http_options=options) as client:
        chat = client.chats.create(model="policy", config=config)
        task = f"{cue('adding')}What is 5 + 4, and 1 + 1?"
        answered = parts(chat, task, streamed=streamed)
        while outputs := responses(answered):
            answered = parts(chat, outputs, streamed=streamed)
    assert not any(part.thought for part in answered)
    assert "".join(part.text or "" for part in answered) == answer("adding")
    assert session.end(1.0).match_rules == {"root": 1, "extend": 2}
