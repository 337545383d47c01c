"""The demo's task with a real model: sums and differences of small numbers. Pure.

The reward is 1 for exactly the right number and 0 for all else, so no other answer is worth
learning. A fifth of all number pairs is held back, in both orders and for both operations. An
evaluation on these shows what was learned, not what was remembered.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypedDict

from openai.types.chat import ChatCompletionMessageParam

from seamlessflow.demo.task import write_tasks

SumSplit = Literal["train", "eval"]
SPLITS: tuple[SumSplit, SumSplit] = ("train", "eval")

LARGEST = 20
"""Largest number in a question."""

INSTRUCTION = "Calculate."
EXAMPLE = ("2 + 3", "5")
"""A question with its answer, in every prompt: the model learns to answer with a number."""


class SumTask(TypedDict):
    """One task, as a line in a JSONL file."""

    id: str
    question: str
    answer: str


def sum_tasks(split: SumSplit, seed: int) -> list[SumTask]:
    """Return all tasks in a split, in the order that the seed draws."""
    tasks = list(_tasks(split))
    random.Random(f"sums {seed}").shuffle(tasks)  # nosec B311 # repeatable draws
    return tasks


def write_sums(directory: Path, seed: int) -> str:
    """Write `train.jsonl` and `eval.jsonl` to a directory; return a line about them."""
    directory.mkdir(parents=True)
    counts = []
    for split in SPLITS:
        tasks = sum_tasks(split, seed)
        write_tasks(tasks, directory / f"{split}.jsonl")
        counts.append(len(tasks))
    trained, held_back = counts
    return (
        f"the model learns {trained} sums and differences of numbers up to {LARGEST}, answered by "
        f"the number alone; {held_back} others are held back to evaluate it"
    )


def dialogue(task: SumTask) -> list[ChatCompletionMessageParam]:
    """Return the messages that ask for the answer."""
    question, answer = EXAMPLE
    return [
        {"role": "system", "content": INSTRUCTION},
        {"role": "user", "content": question},
        {"role": "assistant", "content": answer},
        {"role": "user", "content": task["question"]},
    ]


def sum_reward(task: SumTask, answer: str) -> float:
    """Return 1.0 for exactly the right number, else 0.0."""
    return float(answer.strip() == task["answer"])


def _tasks(split: SumSplit) -> Iterator[SumTask]:
    numbers = range(1, LARGEST + 1)
    for first in numbers:
        for second in numbers:
            # Both orders of a pair are in one split, so that 4 + 3 does not give 3 + 4 away.
            smaller, larger = sorted((first, second))
            if ((smaller + 2 * larger) % 5 == 0) == (split == "eval"):
                yield _task(split, f"{first} + {second}", first + second)
                if first > second:
                    yield _task(split, f"{first} - {second}", first - second)


def _task(split: SumSplit, question: str, answer: int) -> SumTask:
    return SumTask(id=f"{split}-{question.replace(' ', '')}", question=question, answer=f"{answer}")
