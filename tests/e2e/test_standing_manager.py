"""A manager that stands still while a turn is sampled: what it then merges reaches each vendor's
client as it would have, one kind and one call at a time."""

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import anthropic
import openai
import pytest
from google import genai
from google.genai import types

from seamlessflow.infra.kafka.client import BEGINNING, Received
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.schemas import records as r
from seamlessflow.schemas.topics import PROMPTS
from tests.agents.agent_system import AgentSession, AgentSystem
from tests.agents.engine.scripts import cue
from tests.builders.own_topics import SMALL
from tests.e2e.running_system import POLICY
from tests.waiting import until

pytestmark = pytest.mark.kafka
PROMPT = f"{cue('at-once')}What is 5 + 4, and 1 + 1?"
NUMBERS: Any = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
Kinds = list[list[str]]
DEADLINE_S = 120


def chat(session: AgentSession) -> Kinds:
    function = {"name": "add", "parameters": NUMBERS}
    asked: Any = {
        "messages": [{"role": "user", "content": PROMPT}],
        "tools": [{"type": "function", "function": function}],
    }
    with openai.OpenAI(
        base_url=session.base_url, api_key=session.api_key, timeout=DEADLINE_S
    ) as client:
        stream = client.chat.completions.create(model="policy", stream=True, **asked)
        return [_of_delta(chunk.choices[0].delta) for chunk in stream]


def _at(session: AgentSession) -> Any:
    return {"base_url": session.base_url, "api_key": session.api_key, "timeout": DEADLINE_S}


def _of_delta(delta: Any) -> list[str]:
    thought = ["thought"] if getattr(delta, "reasoning_content", None) else []
    return thought + ["text"] * bool(delta.content) + ["call"] * len(delta.tool_calls or ())


def content(session: AgentSession) -> Kinds:
    declared = types.FunctionDeclaration(name="add", parameters_json_schema=NUMBERS)
    config = types.GenerateContentConfig(
        tools=[types.Tool(function_declarations=[declared])],
        thinking_config=types.ThinkingConfig(include_thoughts=True),
    )
    url = session.base_url.removesuffix("/v1")
    options = types.HttpOptions(base_url=url, timeout=1000 * DEADLINE_S)
    client = genai.Client(api_key=session.api_key, http_options=options)
    stream = client.models.generate_content_stream(model="policy", contents=PROMPT, config=config)
    kinds: Kinds = []
    for chunk in stream:
        assert chunk.candidates and chunk.candidates[0].content
        parts = chunk.candidates[0].content.parts
        kinds.append([kind for part in parts or () for kind in _of_part(part)])
    return kinds


def _of_part(part: types.Part) -> list[str]:
    if part.function_call:
        return ["call"]
    return [] if not part.text else ["thought" if part.thought else "text"]


def messages(session: AgentSession) -> Kinds:
    asked: Any = {
        "max_tokens": 2000,
        "messages": [{"role": "user", "content": PROMPT}],
        "tools": [{"name": "add", "input_schema": NUMBERS}],
    }
    url = session.base_url.removesuffix("/v1")
    kinds = {"thinking": "thought", "text": "text", "tool_use": "call"}
    with (
        anthropic.Anthropic(base_url=url, api_key=session.api_key, timeout=DEADLINE_S) as client,
        client.messages.stream(model="policy", **asked) as stream,
    ):
        begun = [event for event in stream if event.type == "content_block_start"]
        return [[kinds[event.content_block.type]] for event in begun]


def responses(session: AgentSession) -> Kinds:
    tool: Any = {"type": "function", "name": "add", "parameters": NUMBERS, "strict": False}
    kinds = {"reasoning": "thought", "message": "text", "function_call": "call"}
    with openai.OpenAI(
        base_url=session.base_url, api_key=session.api_key, timeout=DEADLINE_S
    ) as client:
        stream = client.responses.create(model="policy", input=PROMPT, tools=[tool], stream=True)
        begun = [event for event in stream if event.type == "response.output_item.added"]
        return [[kinds[event.item.type]] for event in begun]


@contextmanager
def _stopped(system: AgentSystem, name: str) -> Iterator[None]:
    """Let a process stand still."""
    process = system.running.processes[name]
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def _is_prompt(received: Received, session_id: str) -> bool:
    record = received.record
    return isinstance(record, r.GenerateTurn) and record.session_id == session_id


@pytest.mark.parametrize("client", [chat, content, messages, responses])
def test_what_was_merged_comes_one_kind_and_one_call_at_a_time(
    system: AgentSystem, client: Callable[[AgentSession], Kinds]
) -> None:
    name = f"standing-{client.__name__}"
    session = system.open(name)
    prompts = Reader(system.running.kafka, "standing")
    prompts.assign({(PROMPTS.name, n): BEGINNING for n in range(SMALL[PROMPTS.name].partitions)})
    with ThreadPoolExecutor(1) as thread, ExitStack() as standing:
        # The worker waits until the manager stands still, which waits until the worker is done.
        with _stopped(system, POLICY):
            streamed = thread.submit(client, session)
            until(lambda: any(_is_prompt(item, name) for item in prompts.poll(0.1)), "the prompt")
            standing.enter_context(_stopped(system, "manager"))
        system.running.expect(r.TurnCompleted, lambda record: record.session_id == name)
        standing.close()
        brought = streamed.result(DEADLINE_S)
    prompts.close()

    assert all(len(kinds) <= 1 for kinds in brought)
    order = [kind for kinds in brought for kind in kinds]
    assert list(dict.fromkeys(order)) == ["thought", "text", "call"]
    assert order.count("call") == 2
    assert session.end(1.0).match_rules == {"root": 1}
