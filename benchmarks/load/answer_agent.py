"""Agent that asks for one whole answer of any length and gives a random reward.

`benchmarks/scheduling/rehearsals.py` plays its sessions, whose lengths the clock engine draws.
"""

import zlib
from collections.abc import Mapping
from typing import Any

from seamlessflow.producers.agents.harness.session import AgentSession


async def run(task: Mapping[str, Any], session: AgentSession) -> float:
    """Play one session; return 0 or 1, which depends on its id alone."""
    asked = {
        "model": session.model,
        "messages": [{"role": "user", "content": f"key {task['key']}"}],
    }
    headers = {"Authorization": f"Bearer {session.api_key}"}
    url = f"{session.base_url}/chat/completions"
    answer = await session.http_client.post(url, json=asked, headers=headers)
    answer.raise_for_status()
    return float(zlib.crc32(session.session_id.encode()) % 2)
