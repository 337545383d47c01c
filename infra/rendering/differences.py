"""Parts of prompts, found by comparing renderings: text that a template adds to messages. Pure.

A generation prompt is what a template writes behind the last message, before an answer. Only it
says if an answer begins inside thinking; the same mark in a message's words does not. Prompts that
differ only in the last message have it as their common end.

A template is a function of the whole history. So the text that messages add behind an answer can
follow sampled tokens only under two conditions. It is the same behind every history, and it leaves
earlier text as it is. Both are tried for each call, behind the sample histories in `probes.py`.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from seamlessflow.infra.rendering import probes
from seamlessflow.infra.rendering.probes import Message
from seamlessflow.infra.rendering.settings import RendererError
from seamlessflow.infra.rendering.tokenizer import Tokenizer

Rendered = TypeVar("Rendered", str, list[int])
"""Text or token ids."""

Render = Callable[[Sequence[Message], bool], Rendered]
"""Return the messages rendered, with a generation prompt or without."""

_WORDS = ("an answer", "other words")

_BEFORE: tuple[tuple[Sequence[Message], Message], ...] = (
    ((), probes.SHORT[0]),
    (({"role": "system", "content": "be brief"},), probes.SHORT[0]),
    (probes.LONG[:2], probes.LONG[2]),
    ((*probes.SHORT, probes.CALL), probes.NEW_MESSAGES[0][0]),
    (probes.LONG[:1], probes.LONG[1]),
)
"""Histories, each with a message behind it whose words are exchanged."""

_Prompt = Callable[[Sequence[Message]], list[int]]
"""Return a prompt's ids. It may raise `RendererError` or `ValueError`."""


class GenerationPrompts:
    """One template's generation prompts, behind messages with each role."""

    def __init__(self, render: _Prompt) -> None:
        endings = {tuple(self._ends(render, *sample)) for sample in _BEFORE} - {()}
        self._known = sorted(map(list, endings), key=len, reverse=True)

    def end_of(self, prompt: list[int]) -> list[int]:
        """Return the generation prompt at a prompt's end; the whole prompt if none is known.

        A prompt may be cut at its beginning.
        """
        for ending in self._known:
            size = min(len(ending), len(prompt))
            if size and prompt[-size:] == ending[-size:]:
                return prompt[-size:]
        return prompt

    def _ends(self, render: _Prompt, before: Sequence[Message], last: Message) -> list[int]:
        """Return the common end of a history's renderings, behind its last message."""
        with suppress(RendererError, ValueError):
            first, second = (render([*before, {**last, "content": words}]) for words in _WORDS)
            shared = 0
            while (
                shared < min(len(first), len(second)) and first[-1 - shared] == second[-1 - shared]
            ):
                shared += 1
            return first[len(first) - shared :]
        return []


def behind_answer(
    render: Render[Rendered],
    ends: Callable[[Rendered], Sequence[int]],
    histories: Sequence[Sequence[Message]],
    new_messages: Sequence[Message],
    *,
    thinking_stays: bool,
) -> Rendered | None:
    """Return what the template writes behind an answer's stop token, up to the next answer.

    None if that depends on the history or is empty. Also None if the new messages change earlier
    text. `ends` returns the place behind each stop token. With `thinking_stays` changes are not
    looked for: the template would only remove earlier thinking.
    """
    additions: list[Rendered] = []
    history: Sequence[Message]
    for history in histories:
        # With a generation prompt too: without one some templates end the whole conversation.
        before = render(history, True)
        after = render([*history, *new_messages], True)
        stops = ends(before)
        later = ends(after)
        if not stops or len(later) < len(stops):
            return None
        begin = later[len(stops) - 1]
        if not thinking_stays and after[:begin] != before[: stops[-1]]:
            return None
        additions.append(after[begin:])
    same = bool(additions) and all(addition == additions[0] for addition in additions)
    return additions[0] if same and additions[0] else None


def behind_prompt(prompt: list[int], whole: list[int], tokenizer: Tokenizer) -> list[int] | None:
    """Return a rendering's ids behind its prompt, as a model would sample them.

    A tokenizer may join the prompt's end with what follows, for example two line ends. Then the
    text behind the prompt is tokenised by itself. None if the rendering does not begin with it.
    """
    if whole[: len(prompt)] == prompt:
        return whole[len(prompt) :]
    before = tokenizer.decode(prompt)
    text = tokenizer.decode(whole)
    return tokenizer.encode(text[len(before) :]) if text.startswith(before) else None
