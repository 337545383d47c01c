"""The `renderers` library: its loading, and types for the parts in use.

Only this module imports the library, which takes about a second. The library is not typed; the
protocols here are what `chat_template.py` and `completion_parser.py` rely on.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, get_args

import pydantic
import renderers

from seamlessflow.infra.rendering.settings import RendererError, RendererSettings, faults
from seamlessflow.infra.rendering.tokenizer import Tokenizer

NEEDS_MORE_THAN_SETTINGS = frozenset({"auto", "custom", "default"})
"""Not usable: `auto` guesses by a model's name, `custom` would load code that a record names,
`default` needs transformers."""

OK = str(renderers.ToolCallParseStatus.OK)
"""A well-formed call's status."""

TemplateMessage = dict[str, object]
"""Message in the form that `chat_template.template_messages` gives it."""

OfferedTools = list[Mapping[str, object]] | None
"""Tools as the library takes them, or None if there are none."""


class RenderedTokens(Protocol):
    """Rendered tokens. `sampled_mask` marks those that the model would sample; empty if unknown."""

    token_ids: list[int]
    sampled_mask: list[bool]


class LibraryCall(Protocol):
    """One attempt at a tool call; `token_span` is its block's place in the completion."""

    raw: str
    name: object
    arguments: object
    token_span: tuple[int, int] | None
    status: str
    id: str | None


class LibraryMessage(Protocol):
    """Parsed completion; `reasoning_complete` is None if the library does not know."""

    content: str
    reasoning_content: str | None
    tool_calls: Sequence[LibraryCall]
    reasoning_complete: bool | None


class LibraryRenderer(Protocol):
    """Renderer for one model family. It may raise any error for messages it cannot render."""

    effective_thinking_retention: str
    """`all` if bridges keep earlier thinking."""

    def get_stop_token_ids(self) -> list[int]: ...

    def render(self, messages: list[TemplateMessage], *, tools: OfferedTools) -> RenderedTokens: ...

    def render_ids(
        self, messages: list[TemplateMessage], *, tools: OfferedTools, add_generation_prompt: bool
    ) -> list[int]: ...

    def bridge_to_next_turn(
        self,
        previous_prompt_ids: list[int],
        previous_completion_ids: list[int],
        new_messages: list[TemplateMessage],
        *,
        tools: OfferedTools,
    ) -> RenderedTokens | None: ...

    def parse_response(
        self, token_ids: list[int], *, tools: OfferedTools, prompt_ids: list[int] | None = None
    ) -> LibraryMessage: ...


def families() -> list[str]:
    """Return the model families that the library knows, by name."""
    configs = get_args(get_args(renderers.RendererConfig)[0])
    names = [str(config.model_fields["name"].default) for config in configs]
    return [name for name in names if name not in NEEDS_MORE_THAN_SETTINGS]


def library_renderer(tokenizer: Tokenizer, settings: RendererSettings) -> LibraryRenderer:
    """Return the library's renderer.

    Raises `RendererError` with the special tokens that the tokenizer lacks, or the wrong setting.
    """
    config = _config(settings)
    try:
        made: LibraryRenderer = renderers.create_renderer(tokenizer, config)
    except Exception as error:
        asked = _RecordingTokenizer(tokenizer)
        with suppress(Exception):  # its ids are made up; only the tokens asked for count
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


class _RecordingTokenizer:
    """Tokenizer that records which tokens it lacks when a renderer asks for them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.missing: list[str] = []
        self._tokenizer = tokenizer

    def __getattr__(self, name: str) -> object:
        return getattr(self._tokenizer, name)

    def convert_tokens_to_ids(self, token: str) -> int:
        token_id = self._tokenizer.token_id(token)
        if token_id is None:
            self.missing.append(token)
        return token_id or 0
