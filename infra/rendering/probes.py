"""Samples that a renderer is tried with when it is loaded. Pure; used in `infra/rendering` only.

Two shortcuts work for most model families but not for all: bridging with only a prompt's last turn,
and parsing completions incrementally. A renderer uses each only if it gives the library's result
for all samples here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from seamlessflow.infra.rendering.completion import ParsedMessage
from seamlessflow.infra.rendering.tokenizer import Tokenizer
from seamlessflow.schemas.tokens import pack

Message = Mapping[str, object]

TOOLS: list[Message] = [
    {
        "type": "function",
        "function": {
            "name": "probe",
            "description": "A tool.",
            "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
        },
    },
]

CALL: Message = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {
            "id": "call_0",
            "type": "function",
            "function": {"name": "probe", "arguments": '{"text": "a"}'},
        }
    ],
}

TEXT: Message = {"role": "assistant", "content": "an answer"}

SHORT: tuple[Message, ...] = ({"role": "user", "content": "one"},)

LONG: tuple[Message, ...] = (
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "two", "reasoning_content": "thought"},
    {"role": "user", "content": "three"},
)


def answered(message: Message, *, thinking: bool) -> tuple[tuple[Message, ...], ...]:
    """Return different histories that end with the answer `message`.

    The last one is for templates that refuse the second: two different ones are enough.
    """

    def thought(message: Message) -> Message:
        return {**message, "reasoning_content": "thought"} if thinking else message

    two: Message = {"role": "assistant", "content": "two"}
    long = (*SHORT, thought(two), {"role": "user", "content": "three"}, thought(message))
    return (*SHORT, thought(message)), ({"role": "system", "content": "be brief"}, *long), long


NEW_MESSAGES: tuple[tuple[Message, ...], ...] = (
    ({"role": "tool", "tool_call_id": "call_0", "name": "probe", "content": "an answer"},),
    ({"role": "user", "content": "another question"},),
)

COMPLETIONS: tuple[str, ...] = (
    "an answer",
    " \n",
    "<think>\nthought\n</think>\n\nan answer",
    "\n<think>\n\n</think>\n\nan answer",
    "thought\n</think>\n\nan answer",
    "<think>\nthought without an end",
    "<think>\nthought<tool_call>\nnot a call\n</tool_call>\nmore\n</think>\nan answer",
    "<think>\nthought\n<tool_call>\nnot a call\n</tool_call>",
    "an answer <tool_call>\nnot a call\n</tool_call>",
    "an answer <think>\nno thought\n</think>",
    "<tool_call>\nnot a call",
)

BridgeTokens = Callable[[bytes, bytes, Sequence[Message]], object]
"""Return a bridge's result from prompt, completion and new messages, to be compared."""


def completions(tokenizer: Tokenizer, call: list[int], stop: int) -> Iterator[bytes]:
    """Yield completions of every kind, each once cut short and once ended by `stop`.

    `call` is a tool call as the model spells it.
    """
    for ids in [*map(tokenizer.encode, COMPLETIONS), call]:
        yield pack(ids)
        yield pack([*ids, stop])


def bridge_needs_only_tail(
    bridge: BridgeTokens,
    prompts: Sequence[bytes],
    tail: Callable[[bytes], bytes],
    samples: list[bytes],
) -> bool:
    """Return whether `bridge` gives the same for all samples with a whole prompt and its tail."""
    return all(
        bridge(prompt, completion, new) == bridge(tail(prompt), completion, new)
        for prompt in prompts
        for completion in samples
        for new in NEW_MESSAGES
    )


def same_message(ours: ParsedMessage, library: ParsedMessage) -> bool:
    """Return whether both parsers agree, except for text behind the first tool call.

    The library drops that text, ours does not.
    """
    our_text = _squeezed(ours.content)
    library_text = _squeezed(library.content)
    calls = library.tool_calls or library.malformed
    same_text = our_text.startswith(library_text) if calls else our_text == library_text
    return same_text and (
        ours.reasoning or "",
        ours.tool_calls,
        ours.malformed,
        ours.reasoning_closed,
    ) == (
        library.reasoning or "",
        library.tool_calls,
        library.malformed,
        library.reasoning_closed,
    )


def _squeezed(text: str) -> str:
    return "".join(text.split())
