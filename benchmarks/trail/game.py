"""Trail: a game with several tool calls, each of which needs the tool's previous answer. Pure.

The user names a key; the model calls `lookup` with it. The tool answers with two digits, a code and
a step: the next key to look up is their sum, modulo 10. So it goes on for the task's turns. Every
task has its own random table, so the next key cannot be known without the answer; after a wrong key
the trail goes on from there. Each right call is a turn reward of 1, and the session's reward is the
share of right calls. A call in a wrong form ends the session.

Difficulty is the task's level: more turns, and more different steps to add.
"""

import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, TypedDict

from seamlessflow.demo.task import lookup_call

Split = Literal["train", "eval"]
Message = Mapping[str, object]

DIGITS = 10


class Level(NamedTuple):
    """A task's difficulty."""

    turns: int
    steps: int
    """Different steps that the tool answers with, from 0 on."""


LEVELS = (Level(4, 1), Level(4, 2), Level(5, 3), Level(6, 4), Level(7, 5))


class TrailTask(TypedDict):
    """One task, as a line in a JSONL file."""

    id: str
    split: Split
    level: int
    """Place in `LEVELS`, counted from 1."""
    turns: int
    key: int
    """The key to begin with."""
    table: list[list[int]]
    """Code and step for each key from 0 to 9."""


def make_tasks(count: int, seed: int, split: Split) -> list[TrailTask]:
    """Return `count` different tasks, as many for each level; the same arguments give the same."""
    draw = random.Random(f"trail {split} {seed}")  # nosec B311 # repeatable draws
    return [_make_task(f"{split}-{seed}-{place:06d}", draw, split, place) for place in range(count)]


def write_tasks(tasks: Iterable[TrailTask], path: Path) -> None:
    """Write tasks to a file, one JSON object a line."""
    path.write_text("".join(json.dumps(task) + "\n" for task in tasks), encoding="utf-8")


def question(task: TrailTask) -> Message:
    """Return the message that a session begins with."""
    return {"role": "user", "content": f"key {task['key']}"}


def tool_answer(task: TrailTask, key: int) -> str:
    """Return what the tool answers to a key."""
    code, step = task["table"][key]
    return f"code {code}{step}"


def following(task: TrailTask, key: int) -> int:
    """Return the right key behind the tool's answer to `key`."""
    code, step = task["table"][key]
    return (code + step) % DIGITS


@dataclass(eq=False)
class Walk:
    """One session on a task: takes the model's answers one after the other."""

    task: TrailTask
    rewards: list[float] = field(default_factory=list)
    """Each turn's reward so far."""
    over: bool = False

    def __post_init__(self) -> None:
        self._right = self.task["key"]

    @property
    def right(self) -> int:
        """Return the key that the next call has to have."""
        return self._right

    @property
    def reward(self) -> float:
        """Return the share of the task's turns that were right."""
        return sum(self.rewards) / self.task["turns"]

    def take(self, answer: Message) -> str | None:
        """Judge an answer; return the tool's words, or None if the session is over with it."""
        key = called_key(answer)
        self.rewards.append(float(key == self._right))
        self.over = key is None or len(self.rewards) == self.task["turns"]
        if key is None or self.over:
            return None
        self._right = following(self.task, key)
        return tool_answer(self.task, key)


def called_key(answer: Message) -> int | None:
    """Return the key if an answer is exactly one valid call to `lookup`, else None."""
    arguments = lookup_call(answer)
    try:
        parsed: object = None if arguments is None else json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    match parsed:
        # `True` is an int in Python.
        case {"key": int(key), **rest} if not rest and not isinstance(key, bool):
            return key if 0 <= key < DIGITS else None
    return None


def _make_task(task_id: str, draw: random.Random, split: Split, place: int) -> TrailTask:
    level = place % len(LEVELS)
    turns, steps = LEVELS[level]
    return TrailTask(
        id=task_id,
        split=split,
        level=level + 1,
        turns=turns,
        key=draw.randrange(DIGITS),
        table=[[draw.randrange(DIGITS), draw.randrange(steps)] for _ in range(DIGITS)],
    )
