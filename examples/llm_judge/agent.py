"""An agent that asks for a review with a mark. The judge gives the reward that is trained.

Its own reward `stated` is for comparison alone: the mark as a rule reads it, 0 without one.
"""

import re

from openai import AsyncOpenAI

SHOWN = [
    {"role": "system", "content": "Review it in a short sentence, with a mark from 1 to 9."},
    {"role": "user", "content": "the old museum"},
    {"role": "assistant", "content": "A quiet place to learn, 5 of 9."},
]
"""An example in each prompt, by which the model gives a mark."""
MARK = re.compile(r"\b([1-9]) of 9\b")


async def run(task, session):
    """Ask once; return the mark that the rule reads."""
    client = AsyncOpenAI(
        base_url=session.base_url, api_key=session.api_key, http_client=session.http_client
    )
    answer = await client.chat.completions.create(
        model=session.model,
        messages=[*SHOWN, {"role": "user", "content": task["thing"]}],
        max_tokens=16,
    )
    mark = MARK.search(answer.choices[0].message.content or "")
    return {"rewards": {"stated": float(mark[1]) if mark else 0.0}}
