"""Chains of a session for other trainers, through everything: open, and behind its end."""

from typing import Any

import httpx
import openai
import pytest

from seamlessflow.producers.gateway.calls.chains import trained_chains
from tests.agents.agent_system import AgentSession, AgentSystem
from tests.agents.engine.scripts import cue

pytestmark = pytest.mark.kafka
MESSAGES: list[Any] = [{"role": "user", "content": f"{cue('adding')}What is 5 + 4, and 1 + 1?"}]


def chains(system: AgentSystem, session: str, key: str) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"}
    return httpx.get(f"{system.running.url}/sessions/{session}/chains", headers=headers, timeout=60)


def spoken(session: AgentSession) -> list[int]:
    """Make a call, and return the ids of its prompt and its answer."""
    with openai.OpenAI(base_url=session.base_url, api_key=session.api_key) as client:
        answer: Any = client.chat.completions.create(
            model="policy", messages=MESSAGES, extra_body={"return_token_ids": True}
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
