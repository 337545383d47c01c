"""A JSONL file's conversations as chains, with each answer as the policy would have sampled it.

What follows an answer is appended to its tokens, as in a session. If the template would change
those tokens, the next answer begins another chain. For example, a new user message may remove
thinking.

Each answer is read back from its tokens, as a policy's answers are. A text may spell control
tokens: it then ends early, or a part of it becomes thinking or a call. The policy would then learn
another answer than the file's. So the parsed answer is compared with the file's.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.json_lines import json_fault, json_lines
from seamlessflow.infra.rendering.completion import ParsedMessage
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.rendering.settings import RendererError
from seamlessflow.producers.gateway.dialects.canonical import functions_json
from seamlessflow.producers.gateway.dialects.openai_chat.messages import canonical_messages
from seamlessflow.producers.gateway.dialects.openai_chat.request import read_tools
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.schemas.json_text import read_json
from seamlessflow.schemas.tokens import TOKEN_BYTES, pack
from seamlessflow.trainer.data.chains import NOWHERE, Chain, Tokens

ConversationMessage = Mapping[str, Any]
_SHOWN = 10


class ConversationsRejected(SeamlessFlowError):
    """A file with lines that cannot be learned; `faults` has a text for each."""

    lasting = True

    def __init__(self, path: Path, faults: Sequence[str]) -> None:
        self.path = path
        self.faults = tuple(faults)
        more = len(faults) - _SHOWN
        lines = [*faults[:_SHOWN], *([f"and {more} further lines"] if more > 0 else [])]
        super().__init__("\n  ".join([f"{path} cannot be learned:", *lines]))


@dataclass(slots=True)
class _Branch:
    """A chain that grows; `answers` has each answer's start and end, in bytes, and its number."""

    ids: bytes
    answers: list[tuple[int, int, int]] = field(default_factory=list)


def read_conversations(
    path: Path, renderer: Renderer, longest: int, vocabulary: int = 0
) -> list[tuple[Chain, ...]]:
    """Return each line's chains, each with at most `longest` tokens.

    The model embeds the ids below `vocabulary`; 0 if that is unknown. A line is `{"messages":
    [...], "tools": [...]}` in OpenAI's chat format. Each assistant message is learned, except those
    with `weight` 0. Raises `ConversationsRejected` with each bad line; a line is also bad if its
    tokens are not read back as the answer.
    """
    chains = []
    faults = []
    try:
        with path.open("rb") as file:
            lines = list(json_lines(file))
    except OSError as error:
        raise ConversationsRejected(path, [error.strerror or str(error)]) from error
    for number, _, _, content in lines:
        try:
            row = json.loads(content.decode())
            name = f"{path.name}:{number}"
            chains.append(conversation_chains(name, row, renderer, longest, vocabulary))
        except ApiError as error:
            faults.append(f"{path}:{number}: {error.message}")
        except (ValueError, RecursionError, RendererError) as error:
            text = json_fault(content, error) if isinstance(error, ValueError) else error
            faults.append(f"{path}:{number}: {text}")
    if not chains and not faults:
        faults.append("it has no conversation")
    if faults:
        raise ConversationsRejected(path, faults)
    return chains


def conversation_chains(
    name: str, row: object, renderer: Renderer, longest: int, vocabulary: int = 0
) -> tuple[Chain, ...]:
    """Return a conversation's chains; `row` is a line in the file as a JSON value.

    Raises `ApiError`, `ValueError`, `RecursionError` and `RendererError`.
    """
    chains = _chains(name, row, renderer, longest)
    _refuse_unembedded(chains, renderer, vocabulary)
    return chains


def _chains(name: str, row: object, renderer: Renderer, longest: int) -> tuple[Chain, ...]:
    messages, tools, turns = _parts(row)
    branches: list[_Branch] = []
    prompt = b""
    answer = b""
    if not turns:
        raise ValueError("no message is an answer (role assistant) to learn")
    if turns[0] == 0:
        raise ValueError("message 0 is an answer, to nothing")
    for number, place in enumerate(turns):
        added = None
        if number:
            new = messages[turns[number - 1] + 1 : place]
            added = renderer.bridge(renderer.tail(prompt), answer, new, tools)
        if added is None:
            branches.append(_Branch(renderer.render(messages[:place], tools)))
        else:
            branches[-1].ids += added
        branch = branches[-1]
        prompt = branch.ids
        answer = renderer.answer(messages[: place + 1], tools)
        _check_read_back(place, messages[place], tools, renderer, prompt, answer)
        branch.ids = prompt + answer
        branch.answers.append((len(prompt), len(branch.ids), number))
        if (tokens := len(branch.ids) // TOKEN_BYTES) > longest:
            limit = f"the {longest} of policy.max_context or the model"
            raise ValueError(f"{tokens} tokens, more than {limit}; cut the conversation")
    names = tuple(f"turn-{number}" for number in range(len(turns)))
    return tuple(Chain(name, names, _tokens(branch)) for branch in branches)


def _refuse_unembedded(chains: Sequence[Chain], renderer: Renderer, vocabulary: int) -> None:
    """Raise `ValueError` for a token that is no row in the model's embeddings."""
    for chain in chains:
        largest = int(chain.tokens.ids_T.max())
        if 0 < vocabulary <= largest:
            text = f"{renderer.decode(pack([largest]))!r} is token {largest}"
            raise ValueError(f"{text}, and the model embeds {vocabulary}; leave it out")


def _parts(
    row: object,
) -> tuple[list[ConversationMessage], list[ConversationMessage] | None, list[int]]:
    """Return messages and tools as a gateway reads those, and the places of answers to learn."""
    if not isinstance(row, dict):
        raise ValueError("not a JSON object")
    values = row.get("messages")
    messages = list(map(orjson.loads, canonical_messages(values)))
    tools = functions_json(read_tools(row.get("tools")))
    turns = [place for place, message in enumerate(values or ()) if _learned(place, message)]
    return messages, read_json(tools) if tools else None, turns


def _learned(place: int, message: ConversationMessage) -> bool:
    weight = 1 if message.get("weight") is None else message["weight"]
    if weight not in (0, 1):
        raise ValueError(f"message {place} has the weight {weight!r:.80}, which is neither 0 nor 1")
    return message.get("role") == "assistant" and weight == 1


def _tokens(branch: _Branch) -> Tokens:
    ids_T = np.frombuffer(branch.ids, "<i4").astype(np.int32)
    size = len(ids_T)
    turns_T, offsets_T = np.full((2, size), NOWHERE, np.int32)
    for start, end, number in branch.answers:
        answer = slice(start // TOKEN_BYTES, end // TOKEN_BYTES)
        turns_T[answer] = number
        offsets_T[answer] = np.arange(answer.stop - answer.start)
    zeros_T = np.zeros(size, np.float32)
    ones_T = np.ones(size, np.float32)
    versions_T = np.full(size, NOWHERE, np.int32)
    return Tokens(ids_T, turns_T >= 0, zeros_T, ones_T, versions_T, turns_T, offsets_T, zeros_T)


def _check_read_back(
    place: int,
    message: ConversationMessage,
    tools: Sequence[ConversationMessage] | None,
    renderer: Renderer,
    prompt: bytes,
    answer: bytes,
) -> None:
    """Raise `ValueError` if the ids `answer` behind `prompt` are not read as the message.

    White space at a text's ends does not count, nor how arguments are spelt, nor what the tokenizer
    normalises.
    """
    calls = message.get("tool_calls") or ()
    # A line may have calls without tools; without any, a call would be read as text.
    offered = tools or [{"type": "function", "function": _named(call)} for call in calls] or None
    read = renderer.parse(answer, offered, renderer.tail(prompt))
    for part, written, learned in _compared(message, read):
        if _normalized(written, renderer) != _normalized(learned, renderer):
            raise ValueError(
                f"message {place} would be learned otherwise: its {part} is {_shown(written)}, and "
                f"its tokens read {_shown(learned)}; leave out control tokens of the model, and "
                "what its template does not write"
            )


def _compared(
    message: ConversationMessage, read: ParsedMessage
) -> Sequence[tuple[str, object, object]]:
    """Return name, given value and read value for each part of an answer."""
    return (
        ("reasoning_content", _text(message, "reasoning_content"), (read.reasoning or "").strip()),
        ("content", _text(message, "content"), read.content.strip()),
        (
            "tool_calls",
            [
                (_named(call)["name"], _value(call["function"]["arguments"] or "{}"))
                for call in message.get("tool_calls") or ()
            ],
            [(call.name, _value(call.arguments)) for call in read.tool_calls],
        ),
        (
            "text",
            "no call",
            f"a malformed call ({read.malformed[0]})" if read.malformed else "no call",
        ),
    )


def _text(message: ConversationMessage, member: str) -> str:
    return str(message.get(member) or "").strip()


def _named(call: ConversationMessage) -> dict[str, str]:
    return {"name": call["function"]["name"]}


def _value(value: object) -> object:
    """Return a value with text that is JSON as its value: some formats write numbers as text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return value
    if isinstance(value, dict):
        return {name: _value(member) for name, member in value.items()}
    return [_value(member) for member in value] if isinstance(value, list) else value


def _normalized(value: object, renderer: Renderer) -> object:
    """Return a value with each text in it as the tokenizer reads it."""
    match value:
        case str(text):
            return renderer.normalized(text)
        case dict(members):
            return {name: _normalized(member, renderer) for name, member in members.items()}
        case list(items) | tuple(items):
            return [_normalized(item, renderer) for item in items]
    return value


def _shown(value: object) -> str:
    return f"{value!r:.120}"
