"""An agent that calls functions, on tasks of the Berkeley Function Calling Leaderboard.

A task without worlds is done with the model's first answer. In one with worlds the model calls
functions of these until it answers without a call; then the user goes on. The leaderboard's own
checker judges, in a separate process and environment (`leaderboard.py`). The reward is 1 or 0; with
worlds it is the share of right turns before the first wrong one.
"""

import asyncio
import json
import uuid
from pathlib import Path

from openai import AsyncOpenAI

HERE = Path(__file__).parent
PYTHON = HERE.parents[1] / ".venv-leaderboard" / "bin" / "python"
MAX_TOKENS = 256
"""Most tokens of an answer; a call takes about forty."""
MAX_ANSWERS = 8
"""Most answers of one turn of the user. The leaderboard allows 20, which a small model fills."""
ANSWER_S = 300.0
"""Deadline of the leaderboard's process, which imports for a while before its first answer."""


async def run(task, session):
    client = AsyncOpenAI(
        base_url=session.base_url,
        api_key=session.api_key,
        http_client=session.http_client,
        timeout=None,  # the run has a limit of its own, pacing.task_timeout_s
    )
    ask = {"model": session.model, "tools": task["tools"], "max_tokens": MAX_TOKENS}
    if not task["worlds"]:
        answer = await client.chat.completions.create(messages=task["turns"][0], **ask)
        calls = [{name: values} for name, values in calls_of(answer.choices[0].message)]
        right = await leaderboard.answer({"ask": "check", "task": task["id"], "calls": calls})
        return 1.0 if right else 0.0
    world = {"session": f"session_{uuid.uuid4().hex}", "task": task["id"]}
    try:
        return await right_turns(client, ask, task, world) / len(task["turns"])
    finally:
        await leaderboard.answer({"ask": "end", **world})


async def right_turns(client, ask, task, world):
    """Play a task until its end or the first wrong turn; return how many turns were right.

    The checker counts no turn after a wrong one, so none is played.
    """
    messages, turns = [], []
    for said in task["turns"]:
        messages += said
        turns.append(await answers_of_turn(client, ask, task, world, messages))
        if not await leaderboard.answer({"ask": "turns", "turns": turns, **world}):
            return len(turns) - 1
    return len(turns)


async def answers_of_turn(client, ask, task, world, messages):
    """Return the calls of each answer until one has none. Answers and results join `messages`."""
    answers = []
    for _ in range(MAX_ANSWERS):
        answer = await client.chat.completions.create(messages=messages, **ask)
        message = answer.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            break
        calls = [written(task, name, values) for name, values in calls_of(message)]
        answers.append(calls)
        results = await leaderboard.answer({"ask": "call", "calls": calls, **world})
        messages += [
            {"role": "tool", "tool_call_id": call.id, "content": result}
            for call, result in zip(message.tool_calls, results, strict=True)
        ]
    return answers


def calls_of(message):
    """Return name and arguments of each call. What the model writes may be anything."""
    return [
        (call.function.name, arguments(call.function.arguments))
        for call in message.tool_calls or ()
    ]


def arguments(text):
    try:
        values = json.loads(text)
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}


def written(task, name, values):
    """Return a call as Python, which the leaderboard evaluates: known names and literals alone."""
    offered = {tool["function"]["name"] for tool in task["tools"]}
    keys = [key for key in values if key.isidentifier()]
    if name not in offered or len(keys) < len(values):
        return "no_such_function()"
    return f"{name}({', '.join(f'{key}={values[key]!r}' for key in keys)})"


class Leaderboard:
    """The leaderboard's process, started by the first question: a line in, a line out."""

    def __init__(self):
        self.process = None
        self.turn = asyncio.Lock()

    async def answer(self, question):
        """Return the answer. Raise `RuntimeError` if the process is missing, ended or silent."""
        async with self.turn, asyncio.timeout(ANSWER_S):
            if self.process is None or self.process.returncode is not None:
                self.process = await self.started()
            self.process.stdin.write(json.dumps(question).encode() + b"\n")
            line = await self.process.stdout.readline()
        if not line:
            raise RuntimeError("the leaderboard's process ended; its last lines are above")
        return json.loads(line)

    async def started(self):
        if not PYTHON.exists():
            raise RuntimeError(f"{PYTHON} is missing: run scripts/leaderboard")
        return await asyncio.create_subprocess_exec(
            PYTHON,
            HERE / "leaderboard.py",
            "serve",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=2**24,
        )


leaderboard = Leaderboard()
