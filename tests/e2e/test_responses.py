"""OpenAI's client on the Responses protocol through everything: what it sends back, or names by the
id of a response, extends the turn it answers."""

import json
from typing import Any

import openai
import pytest
from openai.types.responses import Response

from tests.agents.agent_system import AgentSystem
from tests.agents.engine.scripts import answer, cue

pytestmark = pytest.mark.kafka
ADD: Any = {
    "type": "function",
    "name": "add",
    "description": "Adds two numbers.",
    "strict": False,
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}
INSTRUCTIONS = "You add with your tool."


def said(client: openai.OpenAI, items: list[Any], *, streamed: bool, **more: Any) -> Response:
    asked = {
        "model": "policy",
        "input": items,
        "instructions": INSTRUCTIONS,
        "tools": [ADD],
        "include": ["reasoning.encrypted_content"],
        **more,
    }
    if not streamed:
        whole: Response = client.responses.create(**asked)
        return whole
    with client.responses.stream(**asked) as stream:
        return stream.get_final_response()


def references(response: Response) -> list[Any]:
    return [{"type": "item_reference", "id": item.id} for item in response.output]


def results(response: Response) -> list[Any]:
    return [
        {
            "type": "function_call_output",
            "call_id": item.call_id,
            "output": str(sum(json.loads(item.arguments).values())),
        }
        for item in response.output
        if item.type == "function_call"
    ]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("how", ["sent back", "goes on from", "named", "partly named"])
def test_a_tool_loop_is_one_chain(system: AgentSystem, streamed: bool, how: str) -> None:
    session = system.open(f"responses-{streamed}-{how.replace(' ', '-')}")
    items: list[Any] = [{"role": "user", "content": f"{cue('adding')}What is 5 + 4, and 1 + 1?"}]
    with openai.OpenAI(base_url=session.base_url, api_key=session.api_key) as client:
        response = said(client, items, streamed=streamed)
        while outputs := results(response):
            if how == "goes on from":
                more = {"previous_response_id": response.id}
                response = said(client, outputs, streamed=streamed, **more)
            else:
                sent = list(response.output) if how == "sent back" else references(response)
                # A client may name the reasoning alone, and send the calls.
                sent[1:] = response.output[1:] if how == "partly named" else sent[1:]
                items += [*sent, *outputs]
                response = said(client, items, streamed=streamed)
    assert response.output_text == answer("adding")
    assert session.end(1.0).match_rules == {"root": 1, "extend": 2}


def test_a_response_that_is_not_there_cannot_be_gone_on_from(system: AgentSystem) -> None:
    session = system.open("responses-unknown")
    client = openai.OpenAI(base_url=session.base_url, api_key=session.api_key)
    with client, pytest.raises(openai.BadRequestError) as raised:
        client.responses.create(model="policy", input="hi", previous_response_id="resp_x")
    assert raised.value.code == "previous_response_not_found"


def test_an_item_that_is_not_there_is_refused(system: AgentSystem) -> None:
    session = system.open("item-unknown")
    items: list[Any] = [{"type": "item_reference", "id": "msg_x_0"}]
    client = openai.OpenAI(base_url=session.base_url, api_key=session.api_key)
    with client, pytest.raises(openai.BadRequestError) as raised:
        client.responses.create(model="policy", input=items)
    assert (raised.value.code, raised.value.param) == ("item_not_found", "input")
