"""Sums of the demo with a real model: what is asked, held back and rewarded."""

import json
from pathlib import Path

import pytest

from seamlessflow.demo.sums import (
    LARGEST,
    SPLITS,
    SumTask,
    dialogue,
    sum_reward,
    sum_tasks,
    write_sums,
)

TASK = SumTask(id="t", question="9 + 5", answer="14")


def parts(task: SumTask) -> tuple[int, str, int]:
    """Return the numbers and the sign of a question."""
    first, sign, second = task["question"].split()
    return int(first), sign, int(second)


@pytest.mark.parametrize(
    ("answer", "reward"),
    [
        ("14", 1.0),
        (" 14\n", 1.0),
        ("15", 0.0),
        ("9 + 5 = 14", 0.0),
        ("14.", 0.0),
        ("014", 0.0),
        ("-14", 0.0),
        ("", 0.0),
    ],
)
def test_only_the_right_number_alone_is_worth_something(answer: str, reward: float) -> None:
    assert sum_reward(TASK, answer) == reward


def test_the_answers_are_right_and_the_numbers_small() -> None:
    for split in SPLITS:
        for task in sum_tasks(split, 0):
            first, sign, second = parts(task)
            assert int(task["answer"]) == (first + second if sign == "+" else first - second) > 0
            assert 1 <= second <= LARGEST and 1 <= first <= LARGEST


def test_pairs_that_are_held_back_are_trained_in_no_order_and_no_operation() -> None:
    trained, held_back = (
        {frozenset((first, second)) for first, _, second in map(parts, sum_tasks(split, 0))}
        for split in SPLITS
    )
    assert not trained & held_back
    assert len(trained | held_back) == LARGEST * (LARGEST + 1) / 2
    assert 0.15 < len(held_back) / len(trained | held_back) < 0.25
    for split in SPLITS:
        assert {sign for _, sign, _ in map(parts, sum_tasks(split, 0))} == {"+", "-"}


def test_the_seed_decides_the_order_alone() -> None:
    first, other = sum_tasks("train", 0), sum_tasks("train", 1)
    assert first == sum_tasks("train", 0) != other
    ids = [task["id"] for task in first]
    assert len(set(ids)) == len(ids)
    assert sorted(ids) == sorted(task["id"] for task in other)


def test_the_example_of_each_prompt_is_right_and_the_question_comes_last() -> None:
    *_, example, answer, question = dialogue(TASK)
    assert (example["content"], answer["content"]) == ("2 + 3", "5")
    assert question == {"role": "user", "content": "9 + 5"}


def test_both_files_are_written_and_counted(tmp_path: Path) -> None:
    line = write_sums(tmp_path / "tasks", 3)
    for split in SPLITS:
        lines = (tmp_path / "tasks" / f"{split}.jsonl").read_text().splitlines()
        assert [json.loads(written) for written in lines] == sum_tasks(split, 3)
        assert f" {len(lines)} " in line
