"""An environment of one's own: it lists its tasks, plays them, and rewards what was said.

The file runs in a process beside that of agents. With `agents.environment_python` it may be a
Python that has other packages than this project's.
"""

import random


class Environment:
    """A game of several turns: name a key, hear its code, name that code next."""

    def __init__(self, size=32, seed=0, turns=3):
        self._size = size
        self._seed = seed
        self._turns = turns

    def tasks(self):
        """Yield tasks; each is drawn from a seed, so a later listing has the same."""
        for number in range(self._size):
            draw = random.Random(f"{self._seed} {number}")
            codes = [draw.randrange(10) for _ in range(self._turns)]
            yield {"id": f"{self._seed}-{number}", "codes": codes, "metadata": {"game": "codes"}}

    async def run(self, task, session):
        """Play an episode; an exception would be a failure, never a reward of 0."""
        messages = []
        right = 0
        for said, code in enumerate(task["codes"]):
            messages.append({"role": "user", "content": f"{'code' if said else 'key'} {code}"})
            answer = await session.ask(messages, max_tokens=16)
            text = answer.content or ""
            messages.append({"role": "assistant", "content": text})
            right += str(code) in text
        return right / len(task["codes"])
