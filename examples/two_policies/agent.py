"""An agent of two modules: a planner names the key, a coder says the code.

The header of a call says which module makes it; `agents.modules` says which policy answers.
"""

import re

from openai import AsyncOpenAI


async def run(task, session):
    client = AsyncOpenAI(
        base_url=session.base_url, api_key=session.api_key, http_client=session.http_client
    )

    async def ask(content, module=None):
        answer = await client.chat.completions.create(
            model=session.model,
            messages=[{"role": "user", "content": content}],
            max_tokens=16,
            extra_headers={"x-seamlessflow-module": module} if module else None,
        )
        return (re.findall(r"\d", answer.choices[0].message.content or "") or [""])[0]

    key = await ask(f"key {task['key']}")
    code = await ask(f"code {task['table'][task['key']]}", module="code")
    planned = key == str(task["key"])
    coded = code == str(task["table"][task["key"]])
    return (planned + coded) / 2
