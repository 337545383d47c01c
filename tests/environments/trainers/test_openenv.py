"""OpenEnv's capture proxy, which asks for `return_token_ids` and keeps tokens for a trainer."""

from typing import Any

import pytest

from seamlessflow.producers.agents.environments.known import KNOWN
from tests.agents.agent_system import AgentSystem, same_tokens
from tests.agents.engine.scripts import cue
from tests.e2e.running_system import POLICY, RunningSystem
from tests.environments.checks import SCRIPTS, Row
from tests.environments.trainers.packages import python_of
from tests.environments.trainers.printed import ADD, chains, printed


@pytest.fixture(scope="module")
def captured(acting: AgentSystem, sampling: RunningSystem) -> Any:
    """Return what the proxy kept of an agent's session, and what it says of the endpoint.

    It probes that of a real engine: log-probs of a script are the same at any temperature.
    """
    opened = {
        name: system.admin("/sessions", session_id=name, policy=POLICY).json()
        for name, system in (("openenv-probed", sampling), ("openenv-captured", acting.running))
    }
    before = len(acting.sampled(0))
    orders = {
        "probed_url": opened["openenv-probed"]["base_url"],
        "base_url": opened["openenv-captured"]["base_url"],
        "question": f"{cue('adding')}What is 5 + 4, and 1 + 1?",
        "tool": ADD,
    }
    [kept] = printed(
        python_of(KNOWN["openenv"]),
        "openenv_capture.py",
        orders,
        SESSION_KEY=opened["openenv-captured"]["api_key"],
        PROBED_KEY=opened["openenv-probed"]["api_key"],
    )
    made = acting.running.end("openenv-captured")
    turns = {node.turn_id for node in made.nodes}
    same_tokens(made, [turn for turn in acting.sampled(before) if turn.turn_id in turns])
    return kept


def test_openenv_takes_the_gateway_for_an_endpoint_to_train_from(captured: Any) -> None:
    assert (captured["level"], captured["fixes"]) == ("tokens", [])
    assert captured["trainable"], captured["validation"]


def test_the_sequences_of_a_tool_conversation_are_a_chain_on_the_log(
    acting: AgentSystem, captured: Any, rows: list[Row]
) -> None:
    [chain] = chains(acting.running, "openenv-captured")
    [sequence] = captured["sequences"]
    assert sequence["input_ids"] == chain["token_ids"]
    assert sequence["loss_mask"] == [int(flag) for flag in chain["mask"]]
    assert sequence["logprobs"] == pytest.approx(chain["logprobs"])
    assert captured["turns"] == 3
    rows.append(Row("openenv", "its capture proxy, a tool", SCRIPTS, "3", "1", ""))
