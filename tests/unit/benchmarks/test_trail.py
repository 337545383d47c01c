"""Trail: its rules, its tasks, and the agent that plays it."""

import json
from itertools import pairwise
from statistics import fmean

from benchmarks.trail.game import LEVELS, TrailTask, Walk, following, make_tasks, question
from seamlessflow.demo.task import arguments

TASK = TrailTask(
    id="t",
    split="train",
    level=1,
    turns=4,
    key=2,
    table=[[key, 3] for key in range(10)],
)
"""Behind key k comes k + 3."""


def call(key: object) -> dict[str, object]:
    return spelt(json.dumps({"key": key}))


def spelt(text: str) -> dict[str, object]:
    return {
        "role": "assistant",
        "tool_calls": [{"function": {"name": "lookup", "arguments": text}}],
    }


def test_the_next_key_is_the_sum_of_the_digits_that_the_tool_answers() -> None:
    walk = Walk(TASK)
    said = [walk.take(call(key)) for key in (2, 5, 8, 1)]
    assert said == ["code 23", "code 53", "code 83", None]
    assert (walk.rewards, walk.reward, walk.over) == ([1, 1, 1, 1], 1, True)


def test_after_a_wrong_key_the_trail_goes_on_from_there() -> None:
    walk = Walk(TASK)
    for key in (2, 9, 2, 8):
        walk.take(call(key))
    assert (walk.rewards, walk.reward) == ([1, 0, 1, 0], 0.5)


def test_an_answer_in_a_wrong_form_ends_the_session() -> None:
    wrong = (call(True), call(10), call("2"), spelt("{"), spelt('{"key": 2, "more": 1}'))
    for answer in (*wrong, {"role": "assistant", "content": "code 3"}):
        walk = Walk(TASK)
        walk.take(call(2))
        assert walk.take(answer) is None, answer
        assert (walk.rewards, walk.reward, walk.over) == ([1, 0], 0.25, True)


def test_a_call_as_the_model_spells_it_is_taken() -> None:
    assert Walk(TASK).take(spelt(arguments(2))) == "code 23"


def test_a_thousand_tasks_are_a_thousand_different_games_and_repeatable() -> None:
    tasks = make_tasks(1_000, 7, "train")
    games = {json.dumps([task["key"], task["turns"], task["table"]]) for task in tasks}
    assert len(games) == 1_000
    assert tasks == make_tasks(1_000, 7, "train")
    held_out = make_tasks(1_000, 7, "eval")
    assert not games & {
        json.dumps([task["key"], task["turns"], task["table"]]) for task in held_out
    }


def test_each_level_is_harder_than_the_one_before_and_has_as_many_tasks() -> None:
    tasks = make_tasks(1_000, 7, "train")
    levels = [
        [task for task in tasks if task["level"] == level + 1] for level in range(len(LEVELS))
    ]
    assert [len(level) for level in levels] == [200] * 5
    assert all(task["turns"] >= 4 for task in tasks)
    turns = [fmean(task["turns"] for task in level) for level in levels]
    steps = [len({step for task in level for _, step in task["table"]}) for level in levels]
    assert all(
        easy_turns <= turns and easy_steps < steps
        for (easy_turns, easy_steps), (turns, steps) in pairwise(zip(turns, steps, strict=True))
    )


def test_a_table_alone_decides_what_is_right() -> None:
    assert question(TASK) == {"role": "user", "content": "key 2"}
    assert [following(TASK, key) for key in (0, 6, 7)] == [3, 9, 0]
