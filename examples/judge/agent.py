"""An agent that only answers. It returns what its judge reads, and no reward."""

from openai import AsyncOpenAI


async def run(task, session):
    client = AsyncOpenAI(
        base_url=session.base_url, api_key=session.api_key, http_client=session.http_client
    )
    answer = await client.chat.completions.create(
        model=session.model,
        messages=[{"role": "user", "content": f"key {task['key']}"}],
        max_tokens=16,
    )
    return {"answer": answer.choices[0].message.content or ""}
