"""Agents that ask for one answer and give a random reward, at little cost.

Settings name them as `agents.callable`. `benchmarks switch` keeps generations in flight with
`steady`. `benchmarks pipelines --rehearse` plays sessions with `whole`, whose lengths the clock
engine draws.
"""

import zlib
from collections.abc import Mapping
from typing import Any

from seamlessflow.producers.agents.harness.session import AgentSession

_MAX_TOKENS = 48
"""An answer of an untrained model ends only here."""


async def steady(task: Mapping[str, Any], session: AgentSession) -> float:
    """Play one session with a long answer; return its reward.

    The answer is streamed, so that the log has the time of its first token.
    """
    return await _asked(task, session, {"max_tokens": _MAX_TOKENS, "stream": True})


async def whole(task: Mapping[str, Any], session: AgentSession) -> float:
    """Play one session with an answer of any length, not streamed; return its reward."""
    return await _asked(task, session, {})


async def _asked(
    task: Mapping[str, Any], session: AgentSession, parameters: Mapping[str, object]
) -> float:
    """Return 0 or 1, which depends only on the session's id."""
    body = {
        "model": session.model,
        "messages": [{"role": "user", "content": f"key {task['key']}"}],
        **parameters,
    }
    headers = {"Authorization": f"Bearer {session.api_key}"}
    url = f"{session.base_url}/chat/completions"
    answer = await session.http_client.post(url, json=body, headers=headers)
    answer.raise_for_status()
    return float(zlib.crc32(session.session_id.encode()) % 2)
