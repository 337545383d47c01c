"""Session files from coding agents: Claude Code's and Codex's. Pure.

Both write a line for each item in a session. Neither has the tools that the model was offered, and
Claude Code's has no system prompt. So a rendered conversation lacks them.

The messages are read as the gateway reads them from a call, in each vendor's dialect.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from seamlessflow.producers.gateway.dialects.anthropic_messages.history import AnthropicHistory
from seamlessflow.producers.gateway.dialects.openai_responses.input import canonical_input
from seamlessflow.recorded.importing.conversations.conversation import (
    ForeignConversation,
    NotReadable,
)

AgentLine = Mapping[str, Any]
CLAUDE_CODE = "claude-code"
CODEX = "codex"
_SPOKEN = ("user", "assistant")
_ITEMS = (
    *("message", "reasoning", "function_call", "function_call_output"),
    *("custom_tool_call", "custom_tool_call_output", "local_shell_call", "local_shell_call_output"),
)
"""Items in a Codex file that the model was sent, or that it answered with."""


def is_claude_code(line: AgentLine) -> bool:
    """Return whether a JSON line belongs to a Claude Code file."""
    return "sessionId" in line and "type" in line and not isinstance(line.get("payload"), dict)


def is_codex(line: AgentLine) -> bool:
    """Return whether a JSON line belongs to a Codex file."""
    return isinstance(line.get("payload"), dict) and "type" in line


def claude_code(lines: Sequence[AgentLine]) -> Iterator[ForeignConversation]:
    """Yield the session's conversation and its sub-agents' conversations, in file order.

    If the user went back and took another way, the abandoned part is left out.
    """
    threads: defaultdict[str, list[AgentLine]] = defaultdict(list)
    for line in lines:
        if line.get("type") in _SPOKEN and isinstance(line.get("message"), dict):
            threads[str(line.get("agentId", "")) if line.get("isSidechain") else ""].append(line)
    parents = {line["uuid"]: line.get("parentUuid") for line in lines if "uuid" in line}
    for agent, spoken in threads.items():
        history = AnthropicHistory()
        for number, line in enumerate(_kept(spoken, parents)):
            message = line["message"]
            history.read_message(
                f"message {number}", {"role": message.get("role"), "content": message["content"]}
            )
        session_id = "/".join(filter(None, (str(spoken[0]["sessionId"]), agent)))
        models = [line["message"].get("model", "") for line in spoken]
        yield ForeignConversation(
            list(map(orjson.loads, history.canonical())),
            CLAUDE_CODE,
            session_id=session_id,
            model=next(filter(None, models), ""),
        )


def codex(lines: Sequence[AgentLine]) -> Iterator[ForeignConversation]:
    """Yield the session's conversation: only one, unless Codex compacted its history."""
    begin: Mapping[str, Any] = next(
        (line["payload"] for line in lines if line["type"] == "session_meta"), {}
    )
    models = [line["payload"].get("model", "") for line in lines if line["type"] == "turn_context"]
    instructions = _instructions(begin)
    items: list[Any] = []
    histories = [items]
    for line in lines:
        payload = line["payload"]
        if line["type"] == "compacted":
            items = list(payload.get("replacement_history") or ())
            histories.append(items)
        elif line["type"] == "response_item" and payload.get("type") in _ITEMS:
            items.append(payload)
    for number, history in enumerate(histories):
        if not history:
            raise NotReadable("it has no item of a conversation")
        messages = list(map(orjson.loads, canonical_input(history)))
        yield ForeignConversation(
            [*instructions, *messages],
            CODEX,
            session_id="/".join(filter(None, (str(begin.get("id", "")), str(number or "")))),
            model=next(filter(None, models), ""),
        )


def _kept(spoken: Sequence[AgentLine], parents: Mapping[str, str | None]) -> Iterator[AgentLine]:
    """Yield the lines that lead to the last one, with their calls' other results."""
    led: set[str | None] = set()
    place: str | None = spoken[-1]["uuid"]
    while place is not None and place not in led:
        led.add(place)
        place = parents.get(place)
    answers = {line["message"].get("id") for line in spoken if line["uuid"] in led} - {None}
    for line in spoken:
        if line["message"].get("id") in answers:
            led.add(line["uuid"])
        if line["uuid"] in led or (_has_results(line) and line.get("parentUuid") in led):
            yield line


def _has_results(line: AgentLine) -> bool:
    content = line["message"].get("content")
    blocks = content if isinstance(content, list) else ()
    return any(isinstance(block, dict) and block.get("type") == "tool_result" for block in blocks)


def _instructions(begin: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    stated = begin.get("base_instructions") or begin.get("instructions")
    text = stated.get("text") if isinstance(stated, dict) else stated
    return [{"role": "system", "content": text}] if text else []
