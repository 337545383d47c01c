"""Questions from reasoning-gym in a plain callable.

It does in the agents' process what the environment's process does: it builds the entry, asks, and
scores the answer. `benchmarks environments` names it as `agents.callable`.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from openai import AsyncOpenAI

from seamlessflow.producers.agents.environments.inside.reasoning_gym import Environment
from seamlessflow.producers.agents.environments.known import KNOWN
from seamlessflow.producers.agents.environments.venvs import directory
from seamlessflow.producers.agents.harness.session import AgentSession

PACKAGE = "reasoning_gym"
SETTINGS = "QUESTIONS_SETTINGS"
"""Variable with the adapter's settings, as JSON."""


async def answered(task: Mapping[str, Any], session: AgentSession) -> dict[str, Any]:
    """Play one session; return its rewards."""
    return await _environment().run(task, _Asking(session))


class _Asking:
    """A session whose policy is asked by the client that README.md shows."""

    def __init__(self, session: AgentSession) -> None:
        self._model = session.model
        self._client = AsyncOpenAI(
            base_url=session.base_url,
            api_key=session.api_key,
            http_client=session.http_client,
            max_retries=0,
            timeout=None,
        )

    async def ask(self, messages: Sequence[Any], **options: Any) -> Any:
        """Return the message that the policy answers."""
        completion = await self._client.chat.completions.create(
            model=self._model, messages=list(messages), **options
        )
        return completion.choices[0].message


@cache
def _environment() -> Environment:
    """Return the adapter's questions. The package lies behind ours on the path."""
    libraries = (directory(KNOWN[PACKAGE]) / "lib").glob("python*/site-packages")
    sys.path.extend(map(str, libraries))
    return Environment(**json.loads(os.environ[SETTINGS]))
