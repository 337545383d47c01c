"""A game of two players: each says some digits unseen, and the larger sum wins. A draw is lost.

The policy plays the first one. A past version of it, or itself, plays the second: the header of a
call says whose call it is, and `agents.modules` says which policy answers.
"""

from openai import AsyncOpenAI


async def run(task, session):
    client = AsyncOpenAI(
        base_url=session.base_url, api_key=session.api_key, http_client=session.http_client
    )

    async def play(module):
        answer = await client.chat.completions.create(
            model=session.model,
            messages=[{"role": "user", "content": f"round {task['id']}: say digits"}],
            max_tokens=8,
            extra_headers={"x-seamlessflow-module": module},
        )
        said = answer.choices[0].message.content or ""
        return sum(int(sign) for sign in said if sign in "0123456789")

    mine = await play("first")
    theirs = await play("second")
    return float(mine > theirs)
