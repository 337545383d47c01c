"""A game of several turns: the model names a key, hears its code, and has to name that code next.

Each turn is rewarded by itself. `trainer.advantage: turn` gives every token the returns from its
turn on.
"""

import re

from openai import AsyncOpenAI


async def run(task, session):
    client = AsyncOpenAI(
        base_url=session.base_url, api_key=session.api_key, http_client=session.http_client
    )
    wanted = [task["start"], *task["codes"]]
    messages = [{"role": "user", "content": f"key {wanted[0]}"}]
    turn_rewards = {}
    for number in wanted:
        answer = await client.chat.completions.create(
            model=session.model, messages=messages, max_tokens=16
        )
        text = answer.choices[0].message.content or ""
        right = re.findall(r"\d", text)[:1] == [str(number)]
        turn_rewards[answer.id] = 1.0 if right else 0.0
        messages += [
            {"role": "assistant", "content": text},
            {"role": "user", "content": f"code {number}"},
        ]
    return {"reward": sum(turn_rewards.values()) / len(wanted), "turn_rewards": turn_rewards}
