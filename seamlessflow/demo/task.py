"""The demo's task: look a code up in a table that only a tool can see. Pure.

The user names a key, the model must call `lookup` with it, and must answer the code that the tool
gives. Every task has its own random table, so guessing is right once in ten times and both turns
are needed. A fifth of all (key, code) pairs is never trained on: the evaluation asks whether
copying was learnt, not a table.
"""

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypedDict

Split = Literal["train", "eval"]
Message = Mapping[str, object]

DIGITS = range(10)


class LookupTask(TypedDict):
    """One task as it stands in a JSONL file."""

    id: str
    split: Split
    key: int
    table: list[int]
    """The code of each key from 0 to 9."""


LOOKUP: dict[str, object] = {
    "type": "function",
    "function": {
        "name": "lookup",
        "parameters": {"type": "object", "properties": {"key": {"type": "integer"}}},
    },
}
"""The tool's definition; short, for it stands in every prompt."""


def make_tasks(count: int, seed: int, split: Split) -> list[LookupTask]:
    """`count` tasks; the same ones for the same arguments, on any machine."""
    draw = random.Random(f"{split} {seed}")
    return [_make_task(f"{split}-{seed}-{number:06d}", draw, split) for number in range(count)]


def question(task: LookupTask) -> Message:
    return {"role": "user", "content": f"key {task['key']}"}


def look_up(task: LookupTask, arguments: str) -> str | None:
    """What the tool answers to a call's `arguments` (JSON text); None where they are not `{"key":
    digit}`."""
    match _json(arguments):
        case {"key": int(key), **rest} if key in DIGITS and not rest and not isinstance(key, bool):
            return f"code {task['table'][key]}"
    return None


def reward(task: LookupTask, transcript: Sequence[Message]) -> float:
    """1.0 where the first answer is one call of `lookup` with the right key and the last one is the
    right code, else 0.0.

    `transcript` is all messages of the episode in OpenAI's chat format.
    """
    answers = [message for message in transcript if message.get("role") == "assistant"]
    if len(answers) != 2:
        return 0.0
    called = lookup_call(answers[0])
    asked_right = called is not None and _json(called) == {"key": task["key"]}
    answered_right = answers[1].get("content") == f"code {task['table'][task['key']]}"
    return float(asked_right and answered_right and not answers[1].get("tool_calls"))


def lookup_call(answer: Message) -> str | None:
    """The arguments (JSON text) of an answer that is just one call of `lookup`, else None."""
    if answer.get("content"):
        return None
    match answer.get("tool_calls"):
        case [{"function": {"name": "lookup", "arguments": str(arguments)}}]:
            return arguments
    return None


def write_tasks(tasks: Iterable[LookupTask], path: Path) -> None:
    """One JSON object a line."""
    path.write_text("".join(json.dumps(task) + "\n" for task in tasks), encoding="utf-8")


def pairs(split: Split) -> list[tuple[int, int]]:
    """The (key, code) pairs that tasks of a split ask for: 80 to train on, 20 held back, two of
    them for each key."""
    held_back = split == "eval"
    return [
        (key, code) for key in DIGITS for code in DIGITS if ((key + 3 * code) % 5 == 0) == held_back
    ]


def _make_task(task_id: str, draw: random.Random, split: Split) -> LookupTask:
    key, code = draw.choice(pairs(split))
    table = [draw.choice(DIGITS) for _ in DIGITS]
    table[key] = code
    return LookupTask(id=task_id, split=split, key=key, table=table)


def _json(text: str) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value
