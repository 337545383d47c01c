"""A model's sampled answers and sessions, kept as token ids in lines of JSON.

An existing file is continued, so a measurement that was cut off goes on. Lines have only ids: what
became of their text is computed from them (`shares.py`).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import xxhash

from benchmarks.exact.tasks import FOLLOW_UPS, QUESTIONS, TOOL_QUESTIONS, TOOL_RESULT, TOOLS
from benchmarks.learning.sampler import Prompt, Sampler
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.schemas.tokens import pack, unpack

ROWS = 48
"""Sequences at once."""
MAX_LENGTH = 1024
KV_BYTES = 3 * 2**30
_TURNS = 1 + len(FOLLOW_UPS)
_LARGEST_LIMIT = 256
_SESSION_LIMIT = 32


@dataclass(frozen=True, slots=True)
class Line:
    """A sampled session: its question, and each turn's answer as ids."""

    kind: str
    question: str
    tools: bool
    limit: int
    sample: int
    turns: tuple[tuple[int, ...], ...]

    @property
    def name(self) -> str:
        """Return the text that decides its sampling seed."""
        return f"{self.question} {self.tools} {self.limit} {self.sample}"


@dataclass(frozen=True, slots=True)
class Plan:
    """Sessions to sample: `samples` for each question, with `turns` answers of `limit` tokens."""

    tools: bool
    limit: int
    samples: int
    turns: int = 1

    @property
    def file(self) -> str:
        """Return its file's name."""
        kind = "tools" if self.tools else "plain"
        return f"{kind}-turns{self.turns}-limit{self.limit}.jsonl"

    def lines(self) -> list[Line]:
        """Return the sessions without their answers, so that each part has all questions."""
        asked: Mapping[str, Sequence[str]] = QUESTIONS
        if self.tools:
            asked = {"tools": TOOL_QUESTIONS}
        return [
            Line(kind, question, self.tools, self.limit, sample, ())
            for sample in range(self.samples)
            for kind, questions in asked.items()
            for question in questions
        ]


def plans(tools: bool, scale: int) -> list[Plan]:
    """Return what is sampled from a model, the quick plans first."""
    plain = [
        Plan(False, 64, 8 * scale),
        Plan(False, _SESSION_LIMIT, 2 * scale, _TURNS),
        Plan(False, 16, 16 * scale),
        Plan(False, _LARGEST_LIMIT, 2 * scale),
    ]
    with_tools = [Plan(True, 64, 8 * scale), Plan(True, _SESSION_LIMIT, 2 * scale, _TURNS)]
    return plain + with_tools if tools else plain


class Conversation:
    """A session: its exact prompt, and its messages as a proxy would keep them."""

    def __init__(self, renderer: Renderer, question: str, tools: bool) -> None:
        self._renderer = renderer
        self._tools = TOOLS if tools else None
        self.messages: list[dict[str, Any]] = [{"role": "user", "content": question}]
        self.prompt = renderer.render(self.messages, self._tools)
        """The ids that the model sees, int32 bytes."""

    def answer(self, ids: Sequence[int], follow_up: str) -> None:
        """Go on to the next turn: with results for the answer's calls, or with a question."""
        completion = pack(ids)
        tail = self._renderer.tail(self.prompt)
        parsed = self._renderer.parse(completion, self._tools, tail)
        calls = [
            {
                "id": f"call_{place}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for place, call in enumerate(parsed.tool_calls)
        ]
        # Servers without a parser return the text as it is, with white space at its ends.
        text = parsed.content if calls else text_of(self._renderer, ids)
        said: dict[str, Any] = {"role": "assistant", "content": text}
        new: list[dict[str, Any]] = [{"role": "user", "content": follow_up}]
        if calls:
            said["tool_calls"] = calls
            new = [
                {"role": "tool", "tool_call_id": call["id"], "content": TOOL_RESULT}
                for call in calls
            ]
        bridge = self._renderer.bridge(tail, completion, new, self._tools)
        assert bridge is not None, "these templates continue every answer"
        self.prompt += completion + bridge
        self.messages += [said, *new]

    def rendered_again(self) -> bytes:
        """Return the prompt that the template makes from the messages."""
        return self._renderer.render(self.messages, self._tools)


def text_of(renderer: Renderer, ids: Sequence[int]) -> str:
    """Return an answer's text as servers return it: without special tokens."""
    stream = renderer.text_stream()
    return stream.feed(ids) + stream.flush()


def sampled(plan: Plan, sampler: Sampler, renderer: Renderer, directory: Path) -> Iterator[int]:
    """Sample what a plan's file lacks; yield its line count after each part."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / plan.file
    lines = plan.lines()
    for first in range(len(read(file)) if file.exists() else 0, len(lines), ROWS):
        chosen = lines[first : first + ROWS]
        answered = _answered(plan, chosen, sampler, renderer)
        with file.open("a", encoding="utf-8") as written:
            for line, turns in zip(chosen, answered, strict=True):
                written.write(json.dumps({**asdict(line), "turns": turns}) + "\n")
        yield first + len(chosen)


def _answered(
    plan: Plan, lines: Sequence[Line], sampler: Sampler, renderer: Renderer
) -> list[list[list[int]]]:
    """Return each session's answers to all turns; the sessions take a turn together."""
    conversations = [Conversation(renderer, line.question, line.tools) for line in lines]
    turns: list[list[list[int]]] = [[] for _ in lines]
    for turn in range(plan.turns):
        prompts = []
        for line, conversation in zip(lines, conversations, strict=True):
            name = f"{line.name} {turn}"
            seed = xxhash.xxh3_64_intdigest(name.encode())
            prompts.append(Prompt(name, conversation.prompt, seed))
        answers = sampler.sample(prompts, max_tokens=plan.limit)
        for place, answer in enumerate(answers):
            turns[place].append(unpack(bytes(answer.ids)))
            if turn + 1 < plan.turns:
                conversations[place].answer(turns[place][-1], FOLLOW_UPS[turn])
    return turns


def read(file: Path) -> list[Line]:
    """Return a file's lines."""
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [Line(**{**row, "turns": tuple(map(tuple, row["turns"]))}) for row in rows]
