"""An agent of one turn: it asks, and is rewarded for a right answer."""

from openai import AsyncOpenAI


async def run(task, session):
    client = AsyncOpenAI(
        base_url=session.base_url, api_key=session.api_key, http_client=session.http_client
    )
    answer = await client.chat.completions.create(
        model=session.model, messages=[{"role": "user", "content": task["prompt"]}], max_tokens=16
    )
    return 1.0 if task["answer"] in (answer.choices[0].message.content or "") else 0.0
