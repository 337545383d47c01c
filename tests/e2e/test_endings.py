"""Reasons why an answer ends, from the engine to the vendors' clients: real Kafka, an engine with
a script."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.agents.agent_system import AgentSession, AgentSystem
from tests.agents.engine.scripts import answer, cue

pytestmark = pytest.mark.kafka
USER: Any = {"role": "user", "content": "Say something."}
NUMBERS: Any = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
ADD: Any = {"name": "add", "description": "Adds two numbers."}
TASK: Any = {"role": "user", "content": f"{cue('adding')}What is 5 + 4, and 1 + 1?"}


@pytest.fixture
def session(system: AgentSystem, request: pytest.FixtureRequest) -> AgentSession:
    return system.open(str(request.node.name).replace("[", ".").replace("]", ""))


@pytest.fixture
def claude(session: AgentSession) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(
        base_url=session.base_url.removesuffix("/v1"), api_key=session.api_key
    ) as client:
        yield client


@pytest.fixture
def gpt(session: AgentSession) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=session.base_url, api_key=session.api_key) as client:
        yield client


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("stops", "ending", "text"),
    [
        (["none", " answer"], ("stop_sequence", " answer"), "A short"),
        (["none"], ("end_turn", None), "A short answer."),
    ],
    ids=["stopped", "ended"],
)
def test_anthropics_client_reads_which_stop_sequence_ended_the_answer(
    claude: anthropic.Anthropic, stops: list[str], ending: Any, text: str, streamed: bool
) -> None:
    asked: Any = {"model": "policy", "max_tokens": 99, "messages": [USER], "stop_sequences": stops}
    if streamed:
        with claude.messages.stream(**asked) as stream:
            message: Any = stream.get_final_message()
    else:
        message = claude.messages.create(**asked)
    assert (message.stop_reason, message.stop_sequence) == ending
    assert [block.text for block in message.content] == [text]


def test_openais_client_reads_how_much_was_thinking(gpt: openai.OpenAI) -> None:
    chat = gpt.chat.completions.create(model="policy", messages=[TASK])
    response: Any = gpt.responses.create(model="policy", input=[TASK])
    assert chat.usage is not None and chat.usage.completion_tokens_details is not None
    thought = chat.usage.completion_tokens_details.reasoning_tokens
    assert thought is not None and 0 < thought < chat.usage.completion_tokens
    assert response.usage.output_tokens_details.reasoning_tokens == thought


def chat_turn(client: openai.OpenAI, history: list[Any]) -> tuple[list[Any], str | None]:
    """Run one turn on Chat Completions and its calls; return the calls and the text."""
    asked: Any = {"model": "policy", "messages": history, "parallel_tool_calls": False}
    tools: Any = [{"type": "function", "function": ADD | {"parameters": NUMBERS}}]
    with client.chat.completions.stream(**asked, tools=tools) as stream:
        choice = stream.get_final_completion().choices[0]
    history.append(choice.message)
    calls = choice.message.tool_calls or []
    assert choice.finish_reason == ("tool_calls" if calls else "stop")
    for call in calls:
        total = sum(json.loads(call.function.arguments).values())
        history.append({"role": "tool", "tool_call_id": call.id, "content": str(total)})
    return calls, choice.message.content


def responses_turn(client: openai.OpenAI, history: list[Any]) -> tuple[list[Any], str | None]:
    """Run one turn on Responses and its calls; return the calls and the text."""
    tool: Any = {"type": "function", "strict": False, **ADD, "parameters": NUMBERS}
    asked: Any = {"model": "policy", "input": history, "parallel_tool_calls": False}
    response = client.responses.create(**asked, tools=[tool])
    history += [item.model_dump() for item in response.output]
    calls = [item for item in response.output if item.type == "function_call"]
    for call in calls:
        total = sum(json.loads(call.arguments).values())
        output = {"type": "function_call_output", "call_id": call.call_id, "output": str(total)}
        history.append(output)
    return calls, response.output_text


def messages_turn(client: anthropic.Anthropic, history: list[Any]) -> tuple[list[Any], str | None]:
    """Run one turn on Messages and its calls; return the calls and the text."""
    choice: Any = {"type": "auto", "disable_parallel_tool_use": True}
    asked: Any = {"model": "policy", "messages": history, "tool_choice": choice}
    tool: Any = {**ADD, "input_schema": NUMBERS}
    message = client.messages.create(**asked, max_tokens=999, tools=[tool])
    calls = [block for block in message.content if block.type == "tool_use"]
    assert message.stop_reason == ("tool_use" if calls else "end_turn")
    results = [
        {"type": "tool_result", "tool_use_id": call.id, "content": str(sum(call.input.values()))}
        for call in calls
    ]
    history += [message.to_param(), {"role": "user", "content": results}]
    return calls, message.content[-1].text if not calls else None


@pytest.mark.parametrize("turn", [chat_turn, responses_turn, messages_turn])
def test_an_agent_that_takes_one_call_at_a_time_gets_one_and_its_history_is_one_chain(
    turn: Callable[[Any, list[Any]], tuple[list[Any], str | None]],
    system: AgentSystem,
    session: AgentSession,
    claude: anthropic.Anthropic,
    gpt: openai.OpenAI,
) -> None:
    history = [TASK]
    client = claude if turn is messages_turn else gpt
    turns = [turn(client, history) for _ in range(3)]
    assert [len(calls) for calls, _ in turns] == [1, 1, 0]
    assert turns[-1][1] == answer("adding")
    trajectory = system.running.end(session.session_id)
    assert trajectory.match_rules == {"root": 1, "extend": 2}
    sampled = [node for node in trajectory.nodes if node.origin == "policy"]
    assert all(node.behavior_exact for node in sampled)
    assert sum(trajectory.loss_mask) == sum(node.length for node in sampled)
