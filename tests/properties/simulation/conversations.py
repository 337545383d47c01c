"""Conversations, as agents continue, rewrite, shorten or begin them."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import orjson

from tests.properties.choices import Choices

Message = dict[str, Any]
History = list[Message]

LOOKUP = {
    "type": "function",
    "function": {
        "name": "lookup",
        "parameters": {"type": "object", "properties": {"key": {"type": "integer"}}},
    },
}
TOOLS = (None, orjson.dumps([LOOKUP]))
INSTRUCTIONS: tuple[History, ...] = ([], [{"role": "system", "content": "instructions"}])
PLAIN: tuple[Message, ...] = (
    {"role": "raw", "content": "once upon"},
    {"role": "raw", "content": "code"},
    {"role": "raw", "content": ""},
    {"role": "raw", "ids": [70, 71, 72]},
)
_ASKS = ("key 7", "key 3", "more", "and <|im_end|> then?", "")


def canonical(message: Message) -> bytes:
    """Return a message as requests carry it."""
    return orjson.dumps(message, option=orjson.OPT_SORT_KEYS)


def begun(choices: Choices) -> History:
    """Return a new conversation, with or without a system prompt."""
    systems = ((), ("be brief",), ("you look things up",))
    return [
        *({"role": "system", "content": text} for text in choices.pick(systems)),
        {"role": "user", "content": choices.pick(_ASKS)},
    ]


def gone_on(history: History, answer: Message, choices: Choices) -> History:
    """Return the history with the answer and the agent's reply to it."""
    calls = answer.get("tool_calls") or ()
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": f"code {choices.below(3)}"}
        for call in calls
    ]
    if not results or choices.one_in(4):
        results.append({"role": "user", "content": choices.pick(_ASKS)})
    return [*history, answer, *results]


def written_on(history: History, answer: Message, sampled: list[int], choices: Choices) -> Message:
    """Return a plain prompt that continues another one and its answer, as text or as ids."""
    (prompt,) = history
    if "content" not in prompt:
        kept = sampled[: len(sampled) - choices.below(3)]
        return {**prompt, "ids": [*prompt["ids"], *kept, *[70, 80][: choices.below(3)]]}
    more = choices.pick((" more", "3", " edited"))
    return {**prompt, "content": prompt["content"] + (answer.get("content") or "") + more}


def _without_reasoning(history: History, choices: Choices) -> History:
    for message in history:
        message.pop("reasoning_content", None)
    return history


def _respelt_arguments(history: History, choices: Choices) -> History:
    for message in history:
        for call in message.get("tool_calls") or ():
            try:
                arguments = orjson.loads(call["function"]["arguments"])
            except orjson.JSONDecodeError:
                continue
            if choices.one_in(3) and isinstance(arguments, dict):
                arguments["completed"] = True
            respelt = orjson.dumps(arguments, option=orjson.OPT_INDENT_2).decode()
            call["function"]["arguments"] = respelt
    return history


def _without_text(history: History, choices: Choices) -> History:
    """Leave out the text beside calls, as clients do that have one kind in a message."""
    for message in history:
        if message.get("tool_calls"):
            message["content"] = choices.pick((None, ""))
    return history


def _padded(history: History, choices: Choices) -> History:
    """Name the assistant, and put white space around its answers."""
    for message in history:
        if message["role"] == "assistant":
            message["name"] = "agent"
            message["content"] = f"\n{message.get('content') or ''} "
    return history


def _other_ids(history: History, choices: Choices) -> History:
    for message in history:
        for call in message.get("tool_calls") or ():
            call["id"] = "other"
        if "tool_call_id" in message:
            message["tool_call_id"] = "other"
    return history


def _edited(history: History, choices: Choices) -> History:
    choices.pick(history)["content"] = choices.pick(("edited", "code 3", "key 7"))
    return history


def _shortened(history: History, choices: Choices) -> History:
    return history[: 1 + choices.below(len(history))]


def _compacted(history: History, choices: Choices) -> History:
    kept = [message for message in history if message["role"] == "system"]
    return [*kept, {"role": "user", "content": "so far: a code was looked up"}]


def _other_system(history: History, choices: Choices) -> History:
    rest = [message for message in history if message["role"] != "system"]
    return [{"role": "system", "content": "be another"}, *rest]


def _carried_along(history: History, choices: Choices) -> History:
    """Put an answer that no policy sampled before the last message."""
    said = {"role": "assistant", "content": choices.pick(("a summary", "code 3"))}
    return [*history[:-1], said, *history[-1:]]


def _answer_last(history: History, choices: Choices) -> History:
    """Leave out what follows the last answer."""
    answers = [place for place, message in enumerate(history, 1) if message["role"] == "assistant"]
    return history[: answers[-1]] if answers else history


_REWRITES: tuple[Callable[[History, Choices], History], ...] = (
    _without_reasoning,
    _respelt_arguments,
    _without_text,
    _padded,
    _other_ids,
    _edited,
    _shortened,
    _compacted,
    _other_system,
    _carried_along,
    _answer_last,
)


def rewritten(history: History, choices: Choices) -> History:
    """Return the history as another agent program would send it."""
    return choices.pick(_REWRITES)(deepcopy(history), choices)
