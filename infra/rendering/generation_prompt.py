"""Generation prompts: what a template writes behind the last message, before an answer. Pure.

It alone says if an answer begins inside thinking; the same mark in the words of a message does not.
It is found by rendering: prompts that differ in the last message only end with it.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from seamlessflow.infra.rendering import probes
from seamlessflow.infra.rendering.settings import RendererError

Message = Mapping[str, object]
Render = Callable[[Sequence[Message]], list[int]]
"""Return the ids of a prompt. It may raise `RendererError` or `ValueError`."""

_WORDS = ("an answer", "other words")

_BEFORE: tuple[tuple[Sequence[Message], Message], ...] = (
    ((), probes.SHORT[0]),
    (({"role": "system", "content": "be brief"},), probes.SHORT[0]),
    (probes.LONG[:2], probes.LONG[2]),
    ((*probes.SHORT, probes.CALL), probes.NEW_MESSAGES[0][0]),
    (probes.LONG[:1], probes.LONG[1]),
)
"""Histories, each with the message behind them whose words are exchanged."""


class GenerationPrompts:
    """Generation prompts of one template behind messages of each role."""

    def __init__(self, render: Render) -> None:
        endings = {tuple(self._ends(render, *sample)) for sample in _BEFORE} - {()}
        self._known = sorted(map(list, endings), key=len, reverse=True)

    def end_of(self, prompt: list[int]) -> list[int]:
        """Return the generation prompt at the end of a prompt; all of it if none is known.

        A prompt may be cut at its beginning.
        """
        for ending in self._known:
            size = min(len(ending), len(prompt))
            if size and prompt[-size:] == ending[-size:]:
                return prompt[-size:]
        return prompt

    def _ends(self, render: Render, before: Sequence[Message], last: Message) -> list[int]:
        """Return what the renderings of a history have in common behind its last message."""
        with suppress(RendererError, ValueError):
            first, second = (render([*before, {**last, "content": words}]) for words in _WORDS)
            shared = 0
            while (
                shared < min(len(first), len(second)) and first[-1 - shared] == second[-1 - shared]
            ):
                shared += 1
            return first[len(first) - shared :]
        return []
