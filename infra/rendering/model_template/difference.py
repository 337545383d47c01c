"""The part of a prompt that messages add behind an answer, as the difference of two renderings.

A template is a function of the whole history. What it adds behind an answer can follow sampled
tokens only under two conditions. It is the same behind every history, and it leaves what stands
before as it is. Both are tried for each call, behind the sample histories of `probes.py`. Pure.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

Message = Mapping[str, object]
Rendered = TypeVar("Rendered", str, list[int])
"""Text or token ids."""

Render = Callable[[Sequence[Message], bool], Rendered]
"""Return the messages rendered, with a generation prompt or without."""


def behind_answer(
    render: Render[Rendered],
    ends: Callable[[Rendered], Sequence[int]],
    histories: Sequence[Sequence[Message]],
    new_messages: Sequence[Message],
    *,
    thinking_stays: bool,
) -> Rendered | None:
    """Return what the template writes behind the stop token of an answer, up to the next answer.

    None if that depends on the history, if it is nothing, or if the new messages change what stands
    before them. `ends` returns the places behind each stop token. With `thinking_stays` a template
    that would only remove earlier thinking changes nothing.
    """
    additions: list[Rendered] = []
    history: Sequence[Message]
    for history in histories:
        # With a generation prompt too: without one some templates end the whole conversation.
        before = render(history, True)
        after = render([*history, *new_messages], True)
        stops, later = ends(before), ends(after)
        if not stops or len(later) < len(stops):
            return None
        begin = later[len(stops) - 1]
        if not thinking_stays and after[:begin] != before[: stops[-1]]:
            return None
        additions.append(after[begin:])
    same = bool(additions) and all(addition == additions[0] for addition in additions)
    return additions[0] if same and additions[0] else None
