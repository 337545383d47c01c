"""rLLM's gateway before this one: it asks for `return_token_ids` and keeps traces to train on."""

import pytest

from tests.agents.agent_system import AgentSystem
from tests.agents.engine.scripts import cue
from tests.e2e.running_system import POLICY
from tests.environments.checks import SCRIPTS, Row
from tests.environments.trainers.packages import RLLM, python_of
from tests.environments.trainers.printed import ADD, chains, printed


def test_the_traces_of_a_tool_conversation_are_turns_on_the_log(
    acting: AgentSystem, rows: list[Row]
) -> None:
    opened = acting.running.admin("/sessions", session_id="rllm", policy=POLICY).json()
    orders = {
        "base_url": opened["base_url"],
        "question": f"{cue('adding')}What is 5 + 4, and 1 + 1?",
        "tool": ADD,
    }
    traces = printed(python_of(RLLM), "rllm_traces.py", orders, SESSION_KEY=opened["api_key"])
    *conversation, streamed = traces
    chain, *others = chains(acting.running, "rllm")
    assert len(conversation) == 3
    for number, trace in enumerate(conversation):
        begins = len(trace["prompt_token_ids"])
        ends = begins + len(trace["completion_token_ids"])
        assert trace["prompt_token_ids"] == chain["token_ids"][:begins]
        assert trace["completion_token_ids"] == chain["token_ids"][begins:ends]
        assert trace["logprobs"] == pytest.approx(chain["logprobs"][begins:ends])
        assert chain["turn_numbers"][begins:ends] == [number] * (ends - begins)
    # The streamed call asked the last question again, so its answer stands beside that one's.
    [other] = others
    assert [*streamed["prompt_token_ids"], *streamed["completion_token_ids"]] == other["token_ids"]
    assert streamed["logprobs"] == pytest.approx(
        other["logprobs"][len(streamed["prompt_token_ids"]) :]
    )
    rows.append(Row("rllm-model-gateway", "its traces, a tool", SCRIPTS, "4", "2", ""))
