"""A task set of verifiers: a game in which the policy repeats the codes that it hears.

Nothing here knows who samples or trains. verifiers' own `eval` runs the set too.

A program of its own would take seconds a rollout. So the game's loop is a harness that runs within
the process of verifiers, with all calls by its endpoint.
"""

import itertools
import random

import verifiers.v1 as vf
from openai import AsyncOpenAI

TURNS = 3
SHOWN = [
    {"role": "system", "content": "Repeat the code."},
    {"role": "user", "content": "code 4"},
    {"role": "assistant", "content": "4"},
]
"""An example in each prompt, by which the model answers with a code."""


class CodesData(vf.TaskData):
    """A task: the digit that each turn is about."""

    codes: list[int]


class CodesTask(vf.Task[CodesData]):
    """A game with its rewards."""

    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        """Return the share of answers that are their code, and nothing else."""
        answers = [message.content or "" for message in trace.assistant_messages]
        pairs = zip(self.data.codes, answers, strict=False)
        return sum(answer.strip() == str(code) for code, answer in pairs) / len(self.data.codes)


class CodesTaskset(vf.Taskset[CodesTask]):
    """Games without end, each drawn from its number."""

    INFINITE = True

    def load(self):
        """Yield the games."""
        for number in itertools.count():
            draw = random.Random(number)
            codes = [draw.randrange(10) for _ in range(TURNS)]
            yield CodesTask(
                CodesData(prompt=f"code {codes[0]}", codes=codes, id=str(number)), self.config.task
            )


class CodesHarness(vf.Harness[vf.HarnessConfig]):
    """The game's loop."""

    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data):
        """Play a game by the endpoint, which is not the policy's own."""
        messages = list(SHOWN)
        client = AsyncOpenAI(base_url=endpoint, api_key=secret, max_retries=0, timeout=None)
        async with client:
            for turn, code in enumerate(data.codes):
                question = f"code {code}" if turn else data.prompt
                messages.append({"role": "user", "content": question})
                answer = await client.chat.completions.create(model=ctx.model, messages=messages)
                messages.append(
                    {"role": "assistant", "content": answer.choices[0].message.content or ""}
                )
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


__all__ = ["CodesHarness", "CodesTaskset"]
