"""A model family's chat template on a tokenizer: OpenAI chat messages to token ids.

Templates silently drop what they do not know (a `developer` message, an image for a text model).
Messages that cannot be rendered are therefore refused here. Used in `infra/rendering` only.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from seamlessflow.infra.rendering import probes
from seamlessflow.infra.rendering.library import LibraryRenderer, OfferedTools
from seamlessflow.infra.rendering.settings import RendererError
from seamlessflow.schemas.tokens import TOKEN_BYTES, pack, unpack

Messages = Sequence[Mapping[str, object]]
Tools = Sequence[Mapping[str, object]]

_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}

_FROM_OUTSIDE = ("user", "tool")
"""Roles whose text does not come from the agent or the policy."""

REFUSALS = (ValueError, TypeError, KeyError, AttributeError, AssertionError, NotImplementedError)
"""Errors that the library's templates raise for messages that they cannot render."""


class ChatTemplate:
    """Template for the family `name`. Raises `RendererError` for messages it cannot render."""

    def __init__(
        self, library: LibraryRenderer, name: str, guard: Callable[[str], str] = str
    ) -> None:
        """`guard` is applied to user and tool texts."""
        self._library = library
        self._guard = guard
        self._name = name
        self.stop_token_ids: tuple[int, ...] = tuple(library.get_stop_token_ids())
        self._stops = frozenset(self.stop_token_ids)
        self.thinking_stays = library.effective_thinking_retention == "all"
        """True if earlier thinking stays when a new user message comes."""

    def render(self, messages: Messages, tools: Tools | None, *, ask: bool) -> list[int]:
        """Return the ids of all messages, with a generation prompt (`ask`) or without."""
        with self._refusals():
            return self._library.render_ids(
                self._ready(messages), tools=offered(tools), add_generation_prompt=ask
            )

    def bridge(
        self, prompt: bytes, completion: bytes, new_messages: Messages, tools: Tools | None
    ) -> bytes | None:
        """Return the ids behind `prompt + completion`; None if the template would change it."""
        turn = unpack(prompt)
        sampled = unpack(completion)
        with self._refusals():
            rendered = self._library.bridge_to_next_turn(
                turn, sampled, self._ready(new_messages), tools=offered(tools)
            )
        if rendered is None:
            return None
        before = turn + sampled
        ids = rendered.token_ids
        # A bridge may drop ids sampled behind the turn's end; sampled ids must stay.
        return pack(ids[len(before) :]) if ids[: len(before)] == before else None

    def ends(self, ids: list[int]) -> list[int]:
        """Return the place behind each stop token."""
        return [place for place, token in enumerate(ids, 1) if token in self._stops]

    def from_last_stop(self, prompt: bytes) -> bytes:
        """Return the prompt from its last stop token on, or all of it if it has none.

        Scans from the end, without reading the rest.
        """
        ids = memoryview(prompt).cast("i")
        for place in range(len(ids) - 1, -1, -1):
            if ids[place] in self._stops:
                return prompt[TOKEN_BYTES * place :]
        return prompt

    def spelt_call(self) -> list[int]:
        """Return a tool call's ids as the model samples it, without the stop token.

        Empty if the template has no tool calls.
        """
        with suppress(*REFUSALS):
            rendered = self._library.render(
                template_messages([*probes.SHORT, probes.CALL]), tools=probes.TOOLS
            )
            marked = zip(rendered.token_ids, rendered.sampled_mask, strict=False)
            return [token for token, sampled in marked if sampled and token not in self._stops]
        return []

    def _ready(self, messages: Messages) -> list[dict[str, object]]:
        ready = template_messages(messages)
        for message in ready:
            if message["role"] in _FROM_OUTSIDE:
                message["content"] = self._guard(str(message["content"]))
        return ready

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except REFUSALS as error:
            raise RendererError(self._name, f"cannot render: {error}") from error


def offered(tools: Tools | None) -> OfferedTools:
    """Return tools as the library takes them."""
    return list(tools) if tools else None


class Unrenderable(ValueError):
    """No text template can render the message; the error's text names it and the reason."""


def template_messages(messages: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """Return messages with known roles, text content, and tool calls in the form templates expect.

    `arguments` stay JSON text. Templates that need an object parse it, and those that need text get
    the spelling that was sampled. Consecutive system messages are joined wherever they stand, so
    that a bridge renders new messages as a whole prompt would. Raises `Unrenderable`.
    """
    ready: list[dict[str, object]] = []
    for place, message in enumerate(messages):
        converted = _message(place, message)
        if ready and _same_system(ready[-1], converted):
            texts = (str(ready[-1]["content"]), str(converted["content"]))
            ready[-1]["content"] = "\n\n".join(filter(None, texts))
        else:
            ready.append(converted)
    return ready


def _same_system(before: Mapping[str, object], message: Mapping[str, object]) -> bool:
    """Return whether to join two messages: many templates accept only one system message."""
    same_name = before.get("name") == message.get("name")
    return same_name and before["role"] == message["role"] == "system"


def _message(place: int, message: Mapping[str, object]) -> dict[str, object]:
    role = message.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise Unrenderable(f"message {place} has role {role!r}")
    ready: dict[str, object] = {
        "role": _ROLES[role],
        "content": _text(place, message.get("content")),
    }
    for key in ("name", "tool_call_id", "reasoning_content"):
        if isinstance(message.get(key), str):
            ready[key] = message[key]
    if role == "assistant":
        _add_tool_calls(place, message, ready)
    return ready


def _text(place: int, content: object) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise Unrenderable(f"message {place} has content that is neither text nor parts")
    return "".join(_part(place, part) for part in content)


def _part(place: int, part: object) -> str:
    match part:
        case str(text) | {"type": "text", "text": str(text)}:
            return text
        case {"type": "refusal", "refusal": str(text)}:
            return text
        case {"type": kind}:
            raise Unrenderable(
                f"message {place} has a part of type {kind!r}; only text is rendered"
            )
    raise Unrenderable(f"message {place} has a part that is not an object with a type")


def _add_tool_calls(place: int, message: Mapping[str, object], ready: dict[str, object]) -> None:
    if message.get("function_call") is not None:
        raise Unrenderable(f"message {place} has function_call; use tool_calls")
    calls = message.get("tool_calls")
    if calls is None:
        return
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        raise Unrenderable(f"message {place} has tool_calls that are no list")
    if calls:
        ready["tool_calls"] = [_tool_call(place, call) for call in calls]


def _tool_call(place: int, call: object) -> dict[str, object]:
    match call:
        case {"function": {"name": str(name), "arguments": str(arguments)}, **rest}:
            function = {"name": name, "arguments": arguments or "{}"}
            return {"id": rest.get("id"), "type": "function", "function": function}
    raise Unrenderable(f"message {place} has a tool call without a name and arguments as JSON text")
