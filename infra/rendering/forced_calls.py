"""How a tool call begins, found by rendering some. Pure; used by `infra/rendering/renderer.py`.

No template is known here: calls that differ in what is to be left open are rendered, and the tokens
they have in common are how each of them begins. So the beginning ends between two tokens of the
model's own spelling, and what the template puts before every call (the end of thinking, or thinking
that is empty) belongs to it. A tokenizer may join that beginning with a tool's own name and
arguments: then it ends sooner, if it still begins a call.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from infra.rendering import probes
from infra.rendering.tokenizer import Tokenizer

Message = Mapping[str, object]
Render = Callable[[list[Message], bool], list[int]]
"""Ids of messages, with a generation prompt or without."""

NAMES = ("probe", "_look", "Act")
"""Names that begin with different tokens."""

ARGUMENTS = ("{}", '{"a": 1}', '{"text": 2}')


class NoOpening(ValueError):
    """The template has no calls, or they have no beginning of their own."""


@dataclass(frozen=True, slots=True)
class Opening:
    """Ids: `generation_prompt` is what an answer begins behind, `ids` how a call begins there;
    `calls` are whole answers by function, to try the reading with."""

    generation_prompt: list[int]
    ids: list[int]
    calls: dict[str, list[int]]


def find_opening(
    render: Render,
    tokenizer: Tokenizer,
    messages: Sequence[Message],
    name: str | None,
    tools: Sequence[Message] = (),
) -> Opening:
    """The opening of a call of function `name`, or of any where that is None, behind `messages`.

    Raises `NoOpening`.
    """
    history = _context(messages)
    asked = render(history, True)
    rendered = {own: render([*history, call], False) for own, call in _samples(name)}
    start = common_start(list(rendered.values()))
    if name is None and tools:
        start = _unjoined(start, render, history, tools[0])
    ids = _behind(asked, start, tokenizer)
    if not ids:
        raise NoOpening("tool calls have no beginning in common")
    return Opening(
        generation_prompt=asked[len(common_start([asked, render(history, False)])) :],
        ids=ids,
        calls={own: ids + call[len(start) :] for own, call in rendered.items()},
    )


def common_start(sequences: Sequence[list[int]]) -> list[int]:
    """The tokens that all of them begin with."""
    first = min(sequences, key=len)
    for place, token in enumerate(first):
        if any(other[place] != token for other in sequences):
            return first[:place]
    return first


def _unjoined(start: list[int], render: Render, history: list[Message], tool: Message) -> list[int]:
    """`start` without the tokens that a call of this tool is not spelt with."""
    spelt = render([*history, _call_of(tool)], False)
    shorter = common_start([start, spelt])
    if shorter == start:
        return start
    plain = render([*history, {"role": "assistant", "content": "x"}], False)
    begins_a_call = len(shorter) > len(common_start([shorter, plain]))
    return shorter if begins_a_call else start


def _call_of(tool: Message) -> Message:
    """A call with the first of its arguments."""
    match tool:
        case {"function": {"name": str(name), "parameters": {"properties": dict(properties)}}}:
            first = next(iter(properties), None)
            return _call(name, "{}" if first is None else json.dumps({first: 1}))
        case {"function": {"name": str(name)}}:
            return _call(name, "{}")
    raise NoOpening("the first tool is no function")


def _context(messages: Sequence[Message]) -> list[Message]:
    """A short history that ends with the same role: all that a template looks at."""
    if messages and messages[-1].get("role") == "tool":
        return [*probes.SHORT, probes.CALL, *probes.NEW_MESSAGES[0]]
    return list(probes.SHORT)


def _samples(name: str | None) -> Iterator[tuple[str, Message]]:
    for own, arguments in zip(NAMES, ARGUMENTS, strict=True):
        yield own, _call(own if name is None else name, arguments)


def _call(name: str, arguments: str) -> Message:
    function = {"name": name, "arguments": arguments}
    call = {"id": "call_0", "type": "function", "function": function}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def _behind(asked: list[int], start: list[int], tokenizer: Tokenizer) -> list[int]:
    """What `start` adds to `asked`: tokens where it goes on from them, else its text anew."""
    if start[: len(asked)] == asked:
        return start[len(asked) :]
    before, text = tokenizer.decode(asked), tokenizer.decode(start)
    if not text.startswith(before):
        raise NoOpening("a tool call does not go on from the generation prompt")
    return tokenizer.encode(text[len(before) :])
