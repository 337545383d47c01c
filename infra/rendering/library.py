"""The `renderers` library: how it is loaded, and what is used of it. The only file that imports it
(about a second).

The library gives no types to a checker; the protocols here say what `chat_template.py` and
`infra/rendering/completion_parser.py` rely on.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import pydantic
import renderers

from infra.rendering.settings import RendererError, RendererSettings, faults
from infra.rendering.tokenizer import Tokenizer

NEEDS_MORE_THAN_SETTINGS = frozenset({"auto", "custom", "default"})
"""`auto` guesses by a model's name, `custom` would load code a record names, `default` needs
transformers."""

OK = str(renderers.ToolCallParseStatus.OK)
"""The status of a call that is one."""

TemplateMessage = dict[str, object]
"""As ``template_messages`` makes it ready."""

Offered = list[Mapping[str, object]] | None
"""Tools as the library takes them; None where there are none."""


class RenderedTokens(Protocol):
    """`sampled_mask`: which of them the model would have sampled; empty where it does not tell."""

    token_ids: list[int]
    sampled_mask: list[bool]


class LibraryCall(Protocol):
    """One attempt at a tool call; `token_span` is where its block stands in the completion."""

    raw: str
    name: object
    arguments: object
    token_span: tuple[int, int] | None
    status: str
    id: str | None


class LibraryMessage(Protocol):
    """A completion; `reasoning_complete` is None where the library cannot tell."""

    content: str
    reasoning_content: str | None
    tool_calls: Sequence[LibraryCall]
    reasoning_complete: bool | None


class LibraryRenderer(Protocol):
    """One model family's. What it raises for messages it cannot take, nobody has listed."""

    def get_stop_token_ids(self) -> list[int]: ...

    def render(self, messages: list[TemplateMessage], *, tools: Offered) -> RenderedTokens: ...

    def render_ids(
        self, messages: list[TemplateMessage], *, tools: Offered, add_generation_prompt: bool
    ) -> list[int]: ...

    def bridge_to_next_turn(
        self,
        previous_prompt_ids: list[int],
        previous_completion_ids: list[int],
        new_messages: list[TemplateMessage],
        *,
        tools: Offered,
    ) -> RenderedTokens | None: ...

    def parse_response(
        self, token_ids: list[int], *, tools: Offered, prompt_ids: list[int] | None = None
    ) -> LibraryMessage: ...


def library_renderer(tokenizer: Tokenizer, settings: RendererSettings) -> LibraryRenderer:
    """Raises `RendererError`, naming the special tokens that the tokenizer lacks, or the wrong
    setting."""
    config = _config(settings)
    try:
        made: LibraryRenderer = renderers.create_renderer(tokenizer, config)
    except Exception as error:
        asked = _Asked(tokenizer)
        with suppress(Exception):  # its tokens are made up; only what was asked for counts
            renderers.create_renderer(asked, config)
        reason = f"the tokenizer lacks {', '.join(asked.missing)}" if asked.missing else str(error)
        raise RendererError(settings.name, reason) from error
    return made


def _config(settings: RendererSettings) -> Any:
    if settings.name in NEEDS_MORE_THAN_SETTINGS:
        raise RendererError(settings.name, "name the model family instead (qwen3, llama-3, ...)")
    fields = {**settings.options, "name": settings.name}
    if settings.thinking_retention is not None:
        fields["thinking_retention"] = settings.thinking_retention
    try:
        return pydantic.TypeAdapter[object](renderers.RendererConfig).validate_python(fields)
    except pydantic.ValidationError as error:
        raise RendererError(settings.name, f"settings: {faults(error)}") from error


class _Asked:
    """Stands in for a tokenizer and remembers which tokens a renderer wanted in vain."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.missing: list[str] = []
        self._tokenizer = tokenizer

    def __getattr__(self, name: str) -> object:
        return getattr(self._tokenizer, name)

    def convert_tokens_to_ids(self, token: str) -> int:
        known = self._tokenizer.token_id(token)
        if known is None:
            self.missing.append(token)
        return known or 0
