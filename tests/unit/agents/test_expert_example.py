"""The example `expert`: a policy beside a recorded expert, whose message replaces a wrong one."""

import asyncio
import json
from importlib import import_module
from typing import Any

import pytest

from tests.builders.scripted_endpoint import ScriptedEndpoint

AGENT: Any = import_module("examples.expert.agent")  # has no annotations, as a user's
KEYS = (3, 1, 4, 1, 5)
TASK = {
    "question": "key 3",
    "expert": [{"name": "lookup", "arguments": {"key": key}} for key in KEYS],
    "results": [f"code {key}" for key in (*KEYS[1:], 9)],
}


def called(key: object, name: str = "lookup") -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps({"key": key})}
    return {
        "role": "assistant",
        "tool_calls": [{"id": "call_0", "type": "function", "function": function}],
    }


def played(
    *answers: dict[str, object], patches: int
) -> tuple[dict[str, Any], list[list[dict[str, Any]]]]:
    """Return what the agent returns, and the messages of each request."""
    endpoint = ScriptedEndpoint(list(answers), numbered=True)
    result = asyncio.run(AGENT.run(TASK, endpoint, patches))
    return result, [request["messages"] for request in endpoint.seen]  # type: ignore[misc]


def test_errors_at_turns_2_and_4_of_5_with_a_patch_end_the_session_behind_turn_4() -> None:
    result, prompts = played(called(3), called(7), called(4), called(8), patches=1)
    assert len(prompts) == 4
    assert list(result["turn_rewards"].values()) == pytest.approx([1.0, 0.55, 1.0, 0.55])
    assert result["reward"] == pytest.approx(2 / 5)
    patched, answered = prompts[2][-2:]
    assert patched == AGENT.recorded(TASK["expert"][1], 1)
    assert (answered["tool_call_id"], answered["content"]) == ("expert_1", "code 4")


def test_a_session_without_an_error_is_the_policy_s_alone() -> None:
    result, prompts = played(*(called(key) for key in KEYS), patches=0)
    assert (result["reward"], len(prompts)) == (1.0, 5)
    assert all("expert" not in json.dumps(prompt) for prompt in prompts)


@pytest.mark.parametrize(
    ("answer", "of_form", "of_action"),
    [
        (called(3), 1, 1),
        (called(4), 1, 0.5),
        (called(3, "search"), 1, 0.1),
        ({"role": "assistant", "content": "3"}, 0, 0),
    ],
)
def test_a_turn_is_worth_what_it_has_of_the_expert_s(
    answer: dict[str, Any], of_form: float, of_action: float
) -> None:
    result, _ = (
        played(answer, patches=0)
        if of_action < 1
        else played(answer, *(called(key) for key in KEYS[1:]), patches=0)
    )
    first = next(iter(result["turn_rewards"].values()))
    assert first == pytest.approx(0.1 * of_form + 0.9 * of_action)


def test_arguments_that_are_no_json_are_no_form() -> None:
    class Call:
        name = "lookup"
        arguments = '{"key":'

    assert (AGENT.form([Call]), AGENT.action([Call], TASK["expert"][0])) == (0, 0.5)
