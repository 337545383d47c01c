"""The demo's task: look up a code in a table that only a tool can read. Pure.

The user names a key. The model must call `lookup` with it, then answer with the code that the tool
returns. Every task has its own random table. So a guess is right once in ten times, and both turns
are needed. A fifth of all (key, code) pairs is never trained on. So the evaluation shows that the
model learned to copy, not to remember pairs. The tokenizer learns from perfect episodes
(`dialogue`).
"""

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypedDict

TaskSplit = Literal["train", "eval"]
TaskMessage = Mapping[str, object]

DIGITS = range(10)


class LookupTask(TypedDict):
    """One task, as a line in a JSONL file."""

    id: str
    split: TaskSplit
    key: int
    table: list[int]
    """Codes for the keys 0 to 9."""


LOOKUP: dict[str, object] = {
    "type": "function",
    "function": {
        "name": "lookup",
        "parameters": {"type": "object", "properties": {"key": {"type": "integer"}}},
    },
}
"""The tool's definition; short, because every prompt contains it."""


def make_tasks(count: int, seed: int, split: TaskSplit) -> list[LookupTask]:
    """Return `count` tasks; the same arguments give the same tasks on any machine."""
    draw = random.Random(f"{split} {seed}")  # nosec B311 # repeatable draws
    return [_make_task(f"{split}-{seed}-{number:06d}", draw, split) for number in range(count)]


def question(task: LookupTask) -> TaskMessage:
    return {"role": "user", "content": f"key {task['key']}"}


def look_up(task: LookupTask, arguments: str) -> str | None:
    """Return the tool's result; None if `arguments`, a JSON text, are not `{"key": digit}`."""
    match _json(arguments):
        # `True` is an int in Python.
        case {"key": int(key), **rest} if key in DIGITS and not rest and not isinstance(key, bool):
            return f"code {task['table'][key]}"
    return None


def reward(task: LookupTask, transcript: Sequence[TaskMessage]) -> float:
    """Return 1.0 for one `lookup` call with the right key and then the right code, else 0.0.

    `transcript` has all the episode's messages, in OpenAI's chat format. The model must answer once
    more to each further user message; the last answer counts.
    """
    answers = [message for message in transcript if message.get("role") == "assistant"]
    questions = [message for message in transcript if message.get("role") == "user"]
    if len(answers) != 1 + len(questions):
        return 0.0
    called = lookup_call(answers[0])
    last = answers[-1]
    asked_right = called is not None and _json(called) == {"key": task["key"]}
    answered_right = last.get("content") == f"code {task['table'][task['key']]}"
    return float(asked_right and answered_right and not last.get("tool_calls"))


def lookup_call(answer: TaskMessage) -> str | None:
    """Return the arguments (JSON text) if the answer is exactly one `lookup` call, else None."""
    if answer.get("content"):
        return None
    match answer.get("tool_calls"):
        case [{"function": {"name": "lookup", "arguments": str(arguments)}}]:
            return arguments
    return None


def write_tasks(tasks: Iterable[Mapping[str, object]], path: Path) -> None:
    """Write tasks to a file, one JSON object a line."""
    path.write_text("".join(json.dumps(task) + "\n" for task in tasks), encoding="utf-8")


def pairs(split: TaskSplit) -> list[tuple[int, int]]:
    """Return a split's (key, code) pairs: 80 to train on, 20 held back (two for each key)."""
    held_back = split == "eval"
    return [
        (key, code) for key in DIGITS for code in DIGITS if ((key + 3 * code) % 5 == 0) == held_back
    ]


def call_text(key: int) -> str:
    """Return the first answer, as Qwen3 writes a tool call."""
    return f'<tool_call>\n{{"name": "lookup", "arguments": {arguments(key)}}}\n</tool_call>'


def arguments(key: int) -> str:
    return json.dumps({"key": key})


def answer_text(code: int) -> str:
    """Return the last answer."""
    return f"code {code}"


def tool_message(task: LookupTask, key: int) -> TaskMessage:
    return {
        "role": "tool",
        "tool_call_id": "call_0",
        "content": look_up(task, arguments(key)) or "",
    }


def dialogue(task: LookupTask) -> list[TaskMessage]:
    """Return a perfect episode's messages."""
    key = task["key"]
    call = {"name": "lookup", "arguments": arguments(key)}
    return [
        question(task),
        {
            "role": "assistant",
            "tool_calls": [{"id": "call_0", "type": "function", "function": call}],
        },
        tool_message(task, key),
        {"role": "assistant", "content": answer_text(task["table"][key])},
    ]


def _make_task(task_id: str, draw: random.Random, split: TaskSplit) -> LookupTask:
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
