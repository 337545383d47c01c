"""Shares of answers and prompts whose text has other ids, with their intervals. Pure.

An answer that was sampled with a limit of 64 tokens begins with the answer for a limit of 16. So a
line counts for each lower limit too.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.exact.answers import Conversation, Line, text_of
from benchmarks.exact.encodings import Change, changes
from benchmarks.exact.tasks import FOLLOW_UPS
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.rendering.tokenizer import Tokenizer
from seamlessflow.schemas.tokens import unpack
from seamlessflow.trainer.data.figures.chances import wilson


@dataclass(frozen=True, slots=True)
class Share:
    """A count out of a whole, with Wilson's 95 % interval."""

    count: int
    whole: int

    def interval(self) -> tuple[float, float]:
        """Return the lower and the upper bound; 0 and 1 for a whole of 0."""
        if not self.whole:
            return 0.0, 1.0
        return wilson(self.count / self.whole, self.whole)

    def __str__(self) -> str:
        low, high = (100 * bound for bound in self.interval())
        share = 100 * self.count / self.whole if self.whole else math.nan
        return f"{self.count} of {self.whole}: {share:.1f} % ({low:.1f} to {high:.1f})"


@dataclass(frozen=True, slots=True)
class AnswerChanges:
    """Changes in an answer with at most `limit` tokens."""

    kind: str
    tools: bool
    limit: int
    tokens: int
    stopped: bool
    """True if it ended with a stop token, False if its limit ended it."""
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class PromptChanges:
    """Changes in a turn's prompt, rendered again from messages."""

    tools: bool
    turn: int
    """From 2."""
    tokens: int
    changes: tuple[Change, ...]


def of_answers(
    lines: Sequence[Line], limits: Sequence[int], renderer: Renderer, tokenizer: Tokenizer
) -> Iterator[AnswerChanges]:
    """Yield what becomes of each answer at each limit up to its own; no limits: at its own."""
    stops = set(renderer.stop_token_ids)
    for line in lines:
        for limit in limits or (line.limit,):
            if limit > line.limit:
                continue
            ids = line.turns[0][:limit]
            stopped = ids[-1:] != () and ids[-1] in stops
            body = ids[:-1] if stopped else ids
            again = tokenizer.encode(text_of(renderer, body))
            differing = tuple(changes(body, again, tokenizer.token_bytes))
            yield AnswerChanges(line.kind, line.tools, limit, len(ids), stopped, differing)


def of_prompts(
    lines: Sequence[Line], renderer: Renderer, tokenizer: Tokenizer
) -> Iterator[PromptChanges]:
    """Yield what becomes of each later turn's prompt in each session."""
    for line in lines:
        conversation = Conversation(renderer, line.question, line.tools)
        for place, ids in enumerate(line.turns[:-1]):
            conversation.answer(ids, FOLLOW_UPS[place])
            exact = unpack(conversation.prompt)
            again = unpack(conversation.rendered_again())
            differing = changes(exact, again, tokenizer.token_bytes)
            yield PromptChanges(line.tools, place + 2, len(exact), tuple(differing))


def by_turn(prompts: Sequence[PromptChanges]) -> dict[int, Share]:
    """Return the share of prompts with other ids at each turn."""
    return {
        turn: Share(sum(bool(prompt.changes) for prompt in of_turn), len(of_turn))
        for turn in sorted({prompt.turn for prompt in prompts})
        if (of_turn := [prompt for prompt in prompts if prompt.turn == turn])
    }


def kinds(all_changes: Sequence[Change]) -> Counter[str]:
    """Return the count of changes by kind."""
    return Counter(change.kind for change in all_changes)
