"""The agents against a scripted endpoint, behind the real client."""

import asyncio

import openai
import pytest

from seamlessflow.demo.agent import MAX_SUM_TOKENS, calculate, run
from seamlessflow.demo.sums import SumTask, dialogue
from seamlessflow.demo.task import LOOKUP, LookupTask
from tests.builders.scripted_endpoint import ScriptedEndpoint

TASK = LookupTask(id="t", split="train", key=7, table=[0, 1, 2, 3, 4, 5, 6, 3, 8, 9])
SUM = SumTask(id="t", question="9 + 5", answer="14")


def called(arguments: str, name: str = "lookup") -> dict[str, object]:
    function = {"name": name, "arguments": arguments}
    call = {"id": "call-1", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def said(text: str) -> dict[str, object]:
    return {"role": "assistant", "content": text}


def question(text: str) -> dict[str, object]:
    return {"role": "user", "content": text}


def tool_result(text: str) -> dict[str, object]:
    return {"role": "tool", "tool_call_id": "call-1", "content": text}


def test_it_uses_the_tool_and_is_paid_for_the_right_code() -> None:
    endpoint = ScriptedEndpoint([called('{"key": 7}'), said("code 3")])
    assert asyncio.run(run(TASK, endpoint)) == 1.0
    first, second = endpoint.seen
    assert first["messages"] == [{"role": "user", "content": "key 7"}]
    assert first["tools"] == second["tools"] == [LOOKUP]
    echoed = called('{"key": 7}')
    del echoed["content"]
    result = {"role": "tool", "tool_call_id": "call-1", "content": "code 3"}
    assert second["messages"] == [{"role": "user", "content": "key 7"}, echoed, result]


@pytest.mark.parametrize(
    "answer",
    [
        said("code 3"),
        said(""),
        {"role": "assistant", "content": None},
        called("no json"),
        called('{"key": 70}'),
        called("{}"),
        called('{"key": 7}', name="other"),
    ],
)
def test_an_answer_out_of_form_ends_the_episode_with_nothing(answer: dict[str, object]) -> None:
    endpoint = ScriptedEndpoint([answer])
    assert asyncio.run(run(TASK, endpoint)) == 0.0
    assert len(endpoint.seen) == 1


@pytest.mark.parametrize("answer", [said("code 4"), called('{"key": 7}'), called("no json")])
def test_a_wrong_last_answer_is_worth_nothing(answer: dict[str, object]) -> None:
    endpoint = ScriptedEndpoint([called('{"key": 7}'), answer])
    assert asyncio.run(run(TASK, endpoint)) == 0.0
    assert len(endpoint.seen) == 2


def test_an_error_of_the_endpoint_is_not_the_models_fault() -> None:
    with pytest.raises(openai.NotFoundError):
        asyncio.run(run(TASK, ScriptedEndpoint([404])))
    with pytest.raises(openai.NotFoundError):
        asyncio.run(calculate(SUM, ScriptedEndpoint([404])))


@pytest.mark.parametrize(("answer", "reward"), [("14", 1.0), ("9 + 5 = 14", 0.0), (None, 0.0)])
def test_it_asks_for_a_sum_once_and_is_paid_for_the_number_alone(
    answer: str | None, reward: float
) -> None:
    endpoint = ScriptedEndpoint([{"role": "assistant", "content": answer}])
    assert asyncio.run(calculate(SUM, endpoint)) == reward
    (asked,) = endpoint.seen
    assert asked["messages"] == dialogue(SUM)
    assert asked["max_tokens"] == MAX_SUM_TOKENS


def test_it_begins_in_the_middle_if_its_session_does() -> None:
    call = called('{"key": 7}')
    result = tool_result("code 3")
    asked = question("key 7")
    endpoint = ScriptedEndpoint([said("code 3")], messages=[asked, call, result])

    assert asyncio.run(run(TASK, endpoint)) == 1.0
    assert endpoint.seen[0]["messages"] == [asked, call, result]


@pytest.mark.parametrize(("answer", "reward"), [("code 3", 1.0), ("code 4", 0.0)])
def test_it_answers_a_further_question_and_is_paid_for_the_last_answer(
    answer: str, reward: float
) -> None:
    call = called('{"key": 7}')
    result = tool_result("code 3")
    asked, check = question("key 7"), question("check your work")
    endpoint = ScriptedEndpoint(
        [said(answer)], messages=[asked, call, result, said("code 9"), check]
    )

    assert asyncio.run(run(TASK, endpoint)) == reward
    assert len(endpoint.seen) == 1
