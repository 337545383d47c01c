import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from seamlessflow.demo.task import (
    LookupTask,
    dialogue,
    look_up,
    make_tasks,
    pairs,
    question,
    reward,
    write_tasks,
)

TASK = LookupTask(id="t", split="train", key=7, table=[0, 1, 2, 3, 4, 5, 6, 3, 8, 9])


def called(arguments: str, name: str = "lookup", content: str | None = None) -> dict[str, object]:
    function = {"name": name, "arguments": arguments}
    call = {"id": "c", "type": "function", "function": function}
    return {"role": "assistant", "content": content, "tool_calls": [call]}


def episode(*answers: Mapping[str, object]) -> list[Mapping[str, object]]:
    return [question(TASK), *answers]


def said(text: str) -> dict[str, object]:
    return {"role": "assistant", "content": text}


def test_a_perfect_episode_is_worth_one() -> None:
    assert reward(TASK, dialogue(TASK)) == 1.0
    assert reward(TASK, episode(called('{ "key":7 }'), said("code 3"))) == 1.0


@pytest.mark.parametrize(
    "answers",
    [
        [],
        [said("code 3")],
        [called('{"key": 7}')],
        [called('{"key": 6}'), said("code 3")],
        [called('{"key": "7"}'), said("code 3")],
        [called('{"key": 7, "more": 1}'), said("code 3")],
        [called("[" * 50_000), said("code 3")],
        [called('{"key": 7}', name="guess"), said("code 3")],
        [called('{"key": 7}', content="well"), said("code 3")],
        [called('{"key": 7}'), said("code 4")],
        [called('{"key": 7}'), said("the code 3")],
        [called('{"key": 7}'), {**called('{"key": 7}'), "content": "code 3"}],
        [said("well"), called('{"key": 7}'), said("code 3")],
    ],
)
def test_anything_else_is_worth_nothing(answers: list[Mapping[str, object]]) -> None:
    assert reward(TASK, episode(*answers)) == 0.0


def test_two_calls_at_once_are_worth_nothing() -> None:
    first = called('{"key": 7}')
    first["tool_calls"] = [called('{"key": 7}')["tool_calls"], called('{"key": 8}')["tool_calls"]]
    assert reward(TASK, episode(first, said("code 3"))) == 0.0


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ('{"key": 7}', "code 3"),
        ('{"key": 0}', "code 0"),
        ('{"key": 10}', None),
        ('{"key": -1}', None),
        ('{"key": true}', None),
        ('{"key": 7.0}', None),
        ('{"key": 7, "a": 1}', None),
        ("{}", None),
        ("[]", None),
        ("no json", None),
    ],
)
def test_the_tool_answers_keys_and_nothing_else(arguments: str, answer: str | None) -> None:
    assert look_up(TASK, arguments) == answer


def test_tasks_are_the_same_for_the_same_seed() -> None:
    assert make_tasks(20, 1, "train") == make_tasks(20, 1, "train")
    assert make_tasks(20, 1, "train") != make_tasks(20, 2, "train")
    assert make_tasks(30, 1, "train")[:20] == make_tasks(20, 1, "train")


def test_what_is_evaluated_was_never_trained_on() -> None:
    trained = {(t["key"], t["table"][t["key"]]) for t in make_tasks(3_000, 0, "train")}
    evaluated = {(t["key"], t["table"][t["key"]]) for t in make_tasks(500, 0, "eval")}
    assert trained == set(pairs("train"))
    assert evaluated == set(pairs("eval"))
    assert not trained & evaluated
    assert {key for key, _ in trained} == {key for key, _ in evaluated} == set(range(10))


def test_tasks_are_written_one_a_line(tmp_path: Path) -> None:
    tasks = make_tasks(3, 0, "eval")
    write_tasks(tasks, tmp_path / "tasks.jsonl")
    lines = (tmp_path / "tasks.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == tasks
    assert len({task["id"] for task in tasks}) == 3
