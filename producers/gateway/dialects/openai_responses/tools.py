"""A Responses request's tools as functions, the only kind that chat templates know. Pure.

For the model, a function in a namespace is called `<namespace>__<name>`. The agent gets calls under
the function's own name and namespace. A custom tool becomes a function with one text parameter,
`input`; the local shell becomes a function with a command. Tools that OpenAI's servers run are not
offered to the model. Those that Codex always sends are ignored, and all others are refused.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from seamlessflow.producers.gateway.errors import ApiError, bad

Tool = Mapping[str, Any]
LOCAL_SHELL = "local_shell"
_SEPARATOR = "__"
_NOT_OFFERED = ("web_search", "web_search_preview", "image_generation", "tool_search")


class Offered(NamedTuple):
    """A tool as the agent offered it."""

    kind: str
    """`function`, `custom` or `local_shell`."""
    name: str
    namespace: str | None = None

    @property
    def function(self) -> str:
        """Return the name under which the model knows the tool."""
        return function_name(self.name, self.namespace)


def function_name(name: str, namespace: object) -> str:
    """Return the name under which the model knows a tool, with or without a namespace."""
    return f"{namespace}{_SEPARATOR}{name}" if isinstance(namespace, str) and namespace else name


def read_tools(tools: object, place: str = "tools") -> dict[Offered, dict[str, object]]:
    """Return each tool's function. Raises `ApiError` that names the wrong member."""
    read: dict[str, tuple[Offered, dict[str, object]]] = {}
    for where, namespace, tool in _each(place, tools):
        offer = _tool(where, namespace, tool)
        if offer is None:
            continue
        # An agent may send one tool twice, but not two tools with one name.
        if read.setdefault(offer[0].function, offer) != offer:
            raise bad(f"{where}.name", f"{where} has the name of another: {offer[0].function!r}")
    return dict(read.values())


def _each(place: str, tools: object) -> Iterator[tuple[str, str | None, Tool]]:
    """Yield each tool's place, namespace and definition, also for tools in namespaces."""
    if not isinstance(tools, list):
        raise bad(place, f"{place} must be a list")
    for n, tool in enumerate(tools):
        where = f"{place}[{n}]"
        match tool:
            case {"type": "namespace", "name": str(name), "tools": inner} if name:
                yield from _of_namespace(where, name, tool.get("description"), inner)
            case {"type": "namespace"}:
                raise bad(where, f"{where} must have a name and tools")
            case {"type": str()}:
                yield where, None, tool
            case _:
                raise bad(where, f"{where} must be an object with a type")


def _of_namespace(
    place: str, name: str, described: object, tools: object
) -> Iterator[tuple[str, str | None, Tool]]:
    """Yield a namespace's tools. The first tool's description begins with the namespace's."""
    for n, (where, inner, tool) in enumerate(_each(f"{place}.tools", tools)):
        if inner is not None or tool["type"] not in ("function", "custom"):
            raise bad(where, f"{where} must be of type function or custom")
        texts = [described, tool.get("description")] if n == 0 else []
        described_by = [text for text in texts if isinstance(text, str) and text]
        yield (
            where,
            name,
            {**tool, "description": "\n\n".join(described_by)} if described_by else tool,
        )


def _tool(
    place: str, namespace: str | None, tool: Tool
) -> tuple[Offered, dict[str, object]] | None:
    match tool["type"]:
        case "function" | "custom" as kind:
            name = tool.get("name")
            if not isinstance(name, str) or not name:
                raise bad(f"{place}.name", f"{place}.name must be text")
            offered = Offered(kind, name, namespace)
            described = _member(place, tool, "description", str)
            return offered, {
                "name": offered.function,
                **described,
                **_parameters(place, kind, tool),
            }
        case "local_shell":
            return Offered(LOCAL_SHELL, LOCAL_SHELL), dict(_LOCAL_SHELL)
        case hosted if hosted in _NOT_OFFERED:
            return None
        case other:
            message = f"{place} is of type {other!r}, which is not supported"
            raise ApiError(400, message, code="unsupported_value", param=f"{place}.type")


def _parameters(place: str, kind: str, tool: Tool) -> dict[str, object]:
    if kind == "function":
        return _member(place, tool, "parameters", dict)
    described = "The whole input, as plain text."
    match tool.get("format"):
        case {"type": "grammar", "definition": str(grammar)}:
            described += f" It follows this grammar:\n{grammar}"
    text = {"type": "string", "description": described}
    parameters = {"type": "object", "properties": {"input": text}, "required": ["input"]}
    return {"parameters": parameters}


def _member(place: str, tool: Tool, name: str, kind: type) -> dict[str, object]:
    value = tool.get(name)
    if value is None:
        return {}
    if not isinstance(value, kind):
        where = f"{place}.{name}"
        raise bad(where, f"{where} must be {'text' if kind is str else 'an object'}")
    return {name: value}


_LOCAL_SHELL: Mapping[str, object] = {
    "name": LOCAL_SHELL,
    "description": "Runs a command and gives its output.",
    "parameters": {
        "type": "object",
        "properties": {
            "command": {
                "type": "array",
                "items": {"type": "string"},
                "description": "The program and its arguments.",
            },
            "working_directory": {"type": "string"},
            "timeout_ms": {"type": "integer"},
        },
        "required": ["command"],
    },
}
