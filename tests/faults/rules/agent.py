"""Agent of a load under rules: some of its turns repeat themselves, and a few tasks are hard."""

import random
from collections.abc import Mapping

import httpx

from seamlessflow.producers.agents.harness.session import AgentSession
from tests.faults.faulty_run import LEVELS
from tests.faults.load_agent import talk

_CLOSED = 409
"""Status of a request behind the last turn, or behind a rule's verdict."""
_LENGTHS = (8, 12, 24)
"""Tokens of a turn; the longest repeats itself for longer than the rule allows."""


async def run(task: Mapping[str, object], session: AgentSession) -> float:
    """Return 1 or 0 at random: the higher a task's level is, the less often 1."""
    draw = random.Random(session.session_id)
    lengths = draw.choices(_LENGTHS, k=draw.randint(1, 3))
    try:
        await talk(task, session, lengths)
    except httpx.HTTPStatusError as error:
        if error.response.status_code != _CLOSED:
            raise
    level = int(str(task["id"])) % LEVELS
    return float(draw.random() < 0.9 - 0.4 * level)
