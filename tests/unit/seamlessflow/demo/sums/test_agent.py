"""The agent of the sums against a scripted endpoint, behind the real client."""

import asyncio

import openai
import pytest

from seamlessflow.demo.sums.agent import MAX_TOKENS, run
from seamlessflow.demo.sums.task import SumTask, dialogue
from tests.builders.scripted_endpoint import ScriptedEndpoint

TASK = SumTask(id="t", question="9 + 5", answer="14")


@pytest.mark.parametrize(("answer", "reward"), [("14", 1.0), ("9 + 5 = 14", 0.0), (None, 0.0)])
def test_it_asks_once_and_is_paid_for_the_number_alone(answer: str | None, reward: float) -> None:
    endpoint = ScriptedEndpoint([{"role": "assistant", "content": answer}])
    assert asyncio.run(run(TASK, endpoint)) == reward
    (asked,) = endpoint.seen
    assert asked["messages"] == dialogue(TASK)
    assert asked["max_tokens"] == MAX_TOKENS


def test_an_error_of_the_endpoint_is_not_the_models_fault() -> None:
    with pytest.raises(openai.NotFoundError):
        asyncio.run(run(TASK, ScriptedEndpoint([404])))
