"""Agent that asks for one long answer and gives a random reward, at little cost of its own.

`benchmarks/scheduling/switch.py` keeps generations in flight with it. It streams, so that the log
has the time of each answer's first token.
"""

import zlib
from collections.abc import Mapping
from typing import Any

from seamlessflow.producers.agents.harness.session import AgentSession

MAX_TOKENS = 48
"""An answer of an untrained model ends only here."""


async def run(task: Mapping[str, Any], session: AgentSession) -> float:
    """Play one session; return 0 or 1, which depends on its id alone."""
    asked = {
        "model": session.model,
        "messages": [{"role": "user", "content": f"key {task['key']}"}],
        "max_tokens": MAX_TOKENS,
        "stream": True,
    }
    headers = {"Authorization": f"Bearer {session.api_key}"}
    url = f"{session.base_url}/chat/completions"
    answer = await session.http_client.post(url, json=asked, headers=headers)
    answer.raise_for_status()
    return float(zlib.crc32(session.session_id.encode()) % 2)
