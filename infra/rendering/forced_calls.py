"""Tool call openings, found by rendering a few calls. Pure; used by `renderer.py`.

This module knows no template. It renders calls that differ in the part that is left open. The
tokens with which all of them begin are the opening. So it ends between two tokens, as the model
spells them. It includes what the template puts before every call (the end of thinking, or empty
thinking). A tokenizer may join the opening's end with a tool's own name or arguments. Then a
shorter opening is used, if it still begins a call.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from seamlessflow.infra.rendering import probes
from seamlessflow.infra.rendering.differences import behind_prompt
from seamlessflow.infra.rendering.probes import Message
from seamlessflow.infra.rendering.tokenizer import Tokenizer

RenderMessages = Callable[[list[Message], bool], list[int]]
"""Return the messages' ids, with a generation prompt or without."""

NAMES = ("probe", "_look", "Act")
"""Function names that begin with different tokens."""

ARGUMENTS = ("{}", '{"a": 1}', '{"text": 2}')


class NoOpening(ValueError):
    """The template has no tool calls, or calls do not begin differently from text."""


@dataclass(frozen=True, slots=True)
class Opening:
    """Token ids that open a tool call."""

    generation_prompt: list[int]
    """The prompt's end, behind which an answer begins."""
    ids: list[int]
    """A call's beginning behind it."""
    calls: dict[str, list[int]]
    """Whole answers by function name, to check that they can be parsed."""


def find_opening(
    render: RenderMessages,
    tokenizer: Tokenizer,
    messages: Sequence[Message],
    name: str | None,
    tools: Sequence[Message] = (),
) -> Opening:
    """Return the opening for a call to the function `name`, or to any function if that is None.

    The call follows `messages`. Raises `NoOpening`.
    """
    history = _context(messages)
    asked = render(history, True)
    rendered = {function: render([*history, call], False) for function, call in _samples(name)}
    start = common_start(list(rendered.values()))
    if name is None and tools:
        start = _unjoined(start, render, history, tools[0])
    ids = behind_prompt(asked, start, tokenizer)
    if ids is None:
        raise NoOpening("a tool call does not go on from the generation prompt")
    if not ids:
        raise NoOpening("tool calls have no beginning in common")
    return Opening(
        generation_prompt=asked[len(common_start([asked, render(history, False)])) :],
        ids=ids,
        calls={function: ids + call[len(start) :] for function, call in rendered.items()},
    )


def common_start(sequences: Sequence[list[int]]) -> list[int]:
    """Return the tokens that all sequences begin with."""
    first = min(sequences, key=len)
    for place, token in enumerate(first):
        if any(other[place] != token for other in sequences):
            return first[:place]
    return first


def _unjoined(
    start: list[int], render: RenderMessages, history: list[Message], tool: Message
) -> list[int]:
    """Drop last tokens of `start` that a call to this tool lacks, if the rest begins a call."""
    spelt = render([*history, _call_of(tool)], False)
    shorter = common_start([start, spelt])
    if shorter == start:
        return start
    plain = render([*history, {"role": "assistant", "content": "x"}], False)
    begins_a_call = len(shorter) > len(common_start([shorter, plain]))
    return shorter if begins_a_call else start


def _call_of(tool: Message) -> Message:
    """Return a call to the tool with its first argument."""
    match tool:
        case {"function": {"name": str(name), "parameters": {"properties": dict(properties)}}}:
            first = next(iter(properties), None)
            return _call(name, "{}" if first is None else json.dumps({first: 1}))
        case {"function": {"name": str(name)}}:
            return _call(name, "{}")
    raise NoOpening("the first tool is no function")


def _context(messages: Sequence[Message]) -> list[Message]:
    """Return a short history that ends with the same role; templates look at no more."""
    if messages and messages[-1].get("role") == "tool":
        return [*probes.SHORT, probes.CALL, *probes.NEW_MESSAGES[0]]
    return list(probes.SHORT)


def _samples(name: str | None) -> Iterator[tuple[str, Message]]:
    for function, arguments in zip(NAMES, ARGUMENTS, strict=True):
        yield function, _call(function if name is None else name, arguments)


def _call(name: str, arguments: str) -> Message:
    function = {"name": name, "arguments": arguments}
    call = {"id": "call_0", "type": "function", "function": function}
    return {"role": "assistant", "content": "", "tool_calls": [call]}
