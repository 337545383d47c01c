"""Logs of single calls: OpenTelemetry spans (OTLP JSON), Langfuse's and LiteLLM's exports. Pure.

Spans follow the semantic conventions for generative AI, with the messages in attributes
(`gen_ai.input.messages`). Earlier conventions had them in events, which are not read.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from seamlessflow.recorded.importing.conversations.conversation import (
    ChatMessage,
    ForeignConversation,
    LoggedCall,
    NotReadable,
    conversations_of_calls,
    json_value,
    text_of,
)

LogEntry = Mapping[str, Any]
OPEN_TELEMETRY = "opentelemetry"
LANGFUSE = "langfuse"
LITELLM = "litellm"
_SENT = "gen_ai.input.messages"
_ANSWERED = "gen_ai.output.messages"
_INSTRUCTIONS = "gen_ai.system_instructions"
_TOOLS = "gen_ai.tool.definitions"


def is_open_telemetry(entry: LogEntry) -> bool:
    """Return whether a value is an export request with spans."""
    return "resourceSpans" in entry


def is_langfuse(entry: LogEntry) -> bool:
    """Return whether a value is Langfuse's: an observation, or a trace with observations."""
    return "observations" in entry or ("traceId" in entry and "type" in entry)


def is_litellm(entry: LogEntry) -> bool:
    """Return whether a value is a call that LiteLLM logged."""
    return "messages" in entry and "response" in entry


def open_telemetry(entries: Sequence[LogEntry]) -> Iterator[ForeignConversation]:
    """Yield the conversations in all spans that have a call's messages."""
    spans = [
        span
        for entry in entries
        for resource in entry.get("resourceSpans", ())
        for scope in resource.get("scopeSpans", ())
        for span in scope.get("spans", ())
    ]
    spans.sort(key=lambda span: int(span.get("startTimeUnixNano", 0)))
    return conversations_of_calls(filter(None, map(_of_span, spans)), OPEN_TELEMETRY)


def langfuse(entries: Sequence[LogEntry]) -> Iterator[ForeignConversation]:
    """Yield the conversations in all observations with the type GENERATION."""
    observations = [
        observation for entry in entries for observation in entry.get("observations", (entry,))
    ]
    generations = [each for each in observations if each.get("type") == "GENERATION"]
    generations.sort(key=lambda each: str(each.get("startTime", "")))
    return conversations_of_calls(map(_of_generation, generations), LANGFUSE)


def litellm(entries: Sequence[LogEntry]) -> Iterator[ForeignConversation]:
    """Yield the conversations in all calls that were answered."""
    ordered = sorted(entries, key=lambda entry: str(entry.get("startTime", "")))
    return conversations_of_calls(filter(None, map(_of_litellm, ordered)), LITELLM)


def _of_span(span: LogEntry) -> LoggedCall | None:
    named = {each["key"]: _value(each.get("value", {})) for each in span.get("attributes", ())}
    sent = json_value(named.get(_SENT))
    answers = json_value(named.get(_ANSWERED))
    if not isinstance(sent, list) or not isinstance(answers, list) or not answers:
        return None
    parts = json_value(named.get(_INSTRUCTIONS, []))
    system = [{"role": "system", "parts": parts}] if isinstance(parts, list) and parts else []
    tools = json_value(named.get(_TOOLS, []))
    messages = [read for message in (*system, *sent) for read in _spoken(message)]
    return LoggedCall(
        str(named.get("gen_ai.conversation.id") or span.get("traceId", "")),
        messages,
        next(_spoken(answers[0])),
        [_tool(tool) for tool in tools] if isinstance(tools, list) else (),
        str(named.get("gen_ai.response.model") or named.get("gen_ai.request.model") or ""),
    )


def _value(value: Mapping[str, Any]) -> object:
    """Return an attribute's value, which OTLP wraps in its type's name."""
    for kind, content in value.items():
        if kind == "arrayValue":
            return [_value(each) for each in content.get("values", ())]
        if kind == "kvlistValue":
            return {each["key"]: _value(each["value"]) for each in content.get("values", ())}
        return int(content) if kind == "intValue" else content
    return None


def _spoken(message: LogEntry) -> Iterator[ChatMessage]:
    """Yield a message from the conventions as chat messages: one for each call's result."""
    parts = message.get("parts", ())
    results = [part for part in parts if part.get("type") == "tool_call_response"]
    for part in results:
        content = part.get("response", part.get("result"))
        yield {"role": "tool", "tool_call_id": part["id"], "content": text_of(content)}
    if results:
        return
    spoken: dict[str, Any] = {"role": message["role"], "content": ""}
    for part in parts:
        match part.get("type"):
            case "text":
                spoken["content"] += part["content"]
            case "reasoning":
                spoken["reasoning_content"] = spoken.get("reasoning_content", "") + part["content"]
            case "tool_call":
                spoken.setdefault("tool_calls", []).append(
                    _call(part["id"], part["name"], part.get("arguments", {}))
                )
            case other:
                raise NotReadable(f"a part of the type {other!r}: a text model cannot read it")
    yield spoken


def _call(call_id: str, name: str, arguments: object) -> dict[str, Any]:
    function = {"name": name, "arguments": text_of(arguments)}
    return {"id": call_id, "type": "function", "function": function}


def _tool(tool: LogEntry) -> Mapping[str, Any]:
    """Return a tool in chat form; the conventions leave out the level `function`."""
    if "function" in tool:
        return tool
    members = {name: value for name, value in tool.items() if name != "type"}
    return {"type": "function", "function": members}


def _of_generation(generation: LogEntry) -> LoggedCall:
    sent = json_value(generation.get("input"))
    tools: object = ()
    if isinstance(sent, dict) and "messages" in sent:
        tools = sent.get("tools") or ()
        sent = sent["messages"]
    elif isinstance(sent, dict) and "role" in sent:
        sent = [sent]
    elif isinstance(sent, str):
        sent = [{"role": "user", "content": sent}]
    if not isinstance(sent, list):
        raise NotReadable(f"the generation {generation.get('id')} has no messages as its input")
    return LoggedCall(
        str(generation.get("sessionId") or generation["traceId"]),
        sent,
        _answer(json_value(generation.get("output"))),
        tools if isinstance(tools, list) else (),
        str(generation.get("model") or ""),
    )


def _of_litellm(entry: LogEntry) -> LoggedCall | None:
    sent = json_value(entry["messages"])
    response = json_value(entry["response"])
    if not isinstance(sent, list) or not isinstance(response, dict) or "choices" not in response:
        return None
    parameters = entry.get("model_parameters") or entry.get("optional_params") or {}
    return LoggedCall(
        str(entry.get("session_id") or entry.get("trace_id") or entry.get("id", "")),
        sent,
        _answer(response["choices"][0]["message"]),
        parameters.get("tools") or (),
        str(entry.get("model") or ""),
    )


def _answer(output: object) -> ChatMessage:
    """Return an answer as a message; from a list, take the first one."""
    if isinstance(output, list) and output:
        output = output[0]
    if isinstance(output, dict) and "role" in output:
        return {name: value for name, value in output.items() if value is not None}
    if isinstance(output, str):
        return {"role": "assistant", "content": output}
    raise NotReadable(f"an answer is no message: {orjson.dumps(output).decode():.80}")
