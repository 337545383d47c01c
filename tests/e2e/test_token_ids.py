"""Tokens for trainers of other projects, through everything: they are those on the log."""

import json
from collections.abc import Iterable
from typing import Any

import httpx
import openai
import pytest

from seamlessflow.producers.gateway.calls.chains import trained_chains
from seamlessflow.schemas import records as r
from seamlessflow.schemas.tokens import POLICY, unpack
from tests import http
from tests.agents.agent_system import AgentSession, AgentSystem
from tests.agents.engine.scripts import cue

pytestmark = pytest.mark.kafka
IDS: Any = {"return_token_ids": True}
ADD: Any = {
    "name": "add",
    "description": "Adds two numbers.",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}
QUESTION = f"{cue('adding')}What is 5 + 4, and 1 + 1?"
ASKED: list[Any] = [{"role": "user", "content": QUESTION}]
PromptAndAnswer = tuple[list[int], list[int]]
"""Prompt and answer of a turn."""


def on_log(made: r.Trajectory) -> list[PromptAndAnswer]:
    """Return prompt and answer of each turn of a trajectory, in the order of the log."""

    def before(node: r.TrajectoryNode) -> list[int]:
        if node.parent < 0:
            return []
        parent = made.nodes[node.parent]
        return before(parent) + ids_of(parent)[: node.parent_end]

    def ids_of(node: r.TrajectoryNode) -> list[int]:
        return unpack(made.tokens[4 * node.start : 4 * (node.start + node.length)])

    return [(before(node), ids_of(node)) for node in made.nodes if node.origin == POLICY]


def joined(chunks: Iterable[Any]) -> tuple[Any, dict[int, PromptAndAnswer]]:
    """Return the first choice's message of a stream, and the tokens of each choice."""
    prompts: dict[int, list[int]] = {}
    answers: dict[int, list[int]] = {}
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    calls: dict[int, Any] = {}
    for chunk in chunks:
        for choice in chunk.choices:
            if ids := getattr(chunk, "prompt_token_ids", None):
                prompts[choice.index] = ids
            answers.setdefault(choice.index, []).extend(getattr(choice, "token_ids", None) or ())
            message["content"] += choice.delta.content or ""
            for part in choice.delta.tool_calls or ():
                made = calls.setdefault(
                    part.index, {"type": "function", "function": {"arguments": ""}}
                )
                made["id"] = part.id or made["id"]
                made["function"]["name"] = part.function.name or made["function"]["name"]
                made["function"]["arguments"] += part.function.arguments or ""
    if calls:
        message["tool_calls"] = list(calls.values())
    return message, {index: (prompts[index], answers[index]) for index in prompts}


def asked(
    client: openai.OpenAI, messages: list[Any], *, stream: bool
) -> tuple[Any, PromptAndAnswer]:
    create: Any = client.chat.completions.create
    tools = [{"type": "function", "function": ADD}]
    sent = {"model": "policy", "messages": messages, "tools": tools, "extra_body": IDS}
    if stream:
        message, tokens = joined(create(**sent, stream=True))
        return message, tokens[0]
    answer = create(**sent)
    choice = answer.choices[0]
    return choice.message.model_dump(exclude_none=True), (answer.prompt_token_ids, choice.token_ids)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_the_ids_of_a_tool_conversation_are_those_on_the_log(
    system: AgentSystem, stream: bool
) -> None:
    session = system.open(f"ids-chat-{stream}")
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    turns = []
    with openai.OpenAI(base_url=session.base_url, api_key=session.api_key) as client:
        for _ in range(3):
            message, tokens = asked(client, messages, stream=stream)
            turns.append(tokens)
            messages.append(message)
            for call in message.get("tool_calls", ()):
                result = str(sum(json.loads(call["function"]["arguments"]).values()))
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    assert turns == on_log(session.end(1.0))


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_the_ids_of_responses_are_those_on_the_log(system: AgentSystem, stream: bool) -> None:
    session = system.open(f"ids-responses-{stream}")
    items: Any = [{"role": "user", "content": QUESTION}]
    tools: Any = [{"type": "function", "strict": False, **ADD}]
    more: Any = {}
    turns = []
    with openai.OpenAI(base_url=session.base_url, api_key=session.api_key) as client:
        for _ in range(3):
            sent: Any = {
                "model": "policy",
                "input": items,
                "tools": tools,
                "extra_body": IDS,
                **more,
            }
            if stream:
                *_, last = client.responses.create(**sent, stream=True)
                response = last.response
            else:
                response = client.responses.create(**sent)
            turns.append((response.prompt_token_ids, response.token_ids))
            more = {"previous_response_id": response.id}
            items = [
                {
                    "type": "function_call_output",
                    "call_id": item.call_id,
                    "output": str(sum(json.loads(item.arguments).values())),
                }
                for item in response.output
                if item.type == "function_call"
            ]
    assert turns == on_log(session.end(1.0))


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_the_ids_of_several_choices_with_a_stop_text_are_those_on_the_log(
    system: AgentSystem, stream: bool
) -> None:
    session = system.open(f"ids-choices-{stream}")
    sent: Any = {
        "model": "policy",
        "messages": [{"role": "user", "content": QUESTION}],
        "n": 2,
        "stop": ["see."],
        "extra_body": IDS,
    }
    with openai.OpenAI(base_url=session.base_url, api_key=session.api_key) as client:
        if stream:
            _, tokens = joined(client.chat.completions.create(**sent, stream=True))
            turns = [tokens[0], tokens[1]]
        else:
            answer: Any = client.chat.completions.create(**sent)
            turns = [(answer.prompt_token_ids, choice.token_ids) for choice in answer.choices]
    # The engine keeps no record of what a stop text cuts.
    assert sorted(turns) == sorted(on_log(system.running.end(f"ids-choices-{stream}")))


def chains(system: AgentSystem, session: str, key: str) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"}
    return http.get(f"{system.running.url}/sessions/{session}/chains", headers=headers, timeout=60)


def spoken(session: AgentSession) -> list[int]:
    """Make a call, and return the ids of its prompt and its answer."""
    with openai.OpenAI(base_url=session.base_url, api_key=session.api_key) as client:
        answer: Any = client.chat.completions.create(
            model="policy", messages=ASKED, extra_body={"return_token_ids": True}
        )
    return [*answer.prompt_token_ids, *answer.choices[0].token_ids]


def test_a_session_gives_its_chains_while_it_is_open_and_behind_its_end(
    system: AgentSystem,
) -> None:
    session = system.open("chains")
    ids = spoken(session)

    while_open = chains(system, "chains", session.api_key).json()
    made = session.end(1.0)
    behind = chains(system, "chains", session.api_key).json()

    assert while_open["status"] == "open" and while_open["rewards"] == []
    assert behind["status"] == "finalized"
    assert [reward["value"] for reward in behind["rewards"]] == [1.0]
    for read in (while_open, behind):
        assert [chain["token_ids"] for chain in read["chains"]] == [ids]
        assert read["chains"] == trained_chains(made)


def test_a_session_gives_its_chains_to_its_owner_alone(system: AgentSystem) -> None:
    system.open("chains-of-one")
    other = system.open("chains-of-another")
    refused = chains(system, "chains-of-one", other.api_key)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "admin_key_needed")
    assert chains(system, "chains-of-one", "wrong").status_code == 401
    unknown = chains(system, "unheard-of", system.running.admin_key)
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "unknown_session")
