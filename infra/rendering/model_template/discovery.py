"""A model directory's renderer, found by comparing prompts with the model's own template.

Used if a configuration names no renderer. A family in the `renderers` library counts if it writes
the same prompts as the directory's chat template. Without such a family the template itself
renders.
"""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from seamlessflow.infra.rendering import probes
from seamlessflow.infra.rendering.chat_template import (
    ChatTemplate,
    Messages,
    Tools,
    template_messages,
)
from seamlessflow.infra.rendering.library import families, library_renderer
from seamlessflow.infra.rendering.model_template.jinja import JinjaTemplate, TemplateRefusal
from seamlessflow.infra.rendering.model_template.properties import with_short_ids
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.rendering.settings import (
    CHAT_TEMPLATE,
    FROM_MODEL,
    RendererError,
    RendererSettings,
)
from seamlessflow.infra.rendering.tokenizer import Tokenizer, TokenizerError

CONVERSATIONS: tuple[tuple[Messages, Tools | None], ...] = (
    (probes.SHORT, None),
    (({"role": "system", "content": "be brief"}, *probes.LONG), None),
    (with_short_ids((*probes.SHORT, probes.CALL, *probes.NEW_MESSAGES[0])), probes.TOOLS),
)
"""Compared prompts, each with the tools that it offers; all templates take these call ids."""


def named_for(directory: Path, settings: RendererSettings) -> RendererSettings:
    """Return the settings; if they name no renderer, with the one found for the directory.

    Raises `RendererError`.
    """
    if settings.name != FROM_MODEL:
        return settings
    return replace(settings, name=found_for(directory).name)


def found_for(directory: Path) -> RendererSettings:
    """Return the settings for a model directory's renderer.

    Takes a second or two, most of it for the library's import. Raises `RendererError` with the
    reason if there is none; then `policy.renderer` must name one.
    """
    try:
        return _found(directory)
    except (RendererError, TokenizerError, TemplateRefusal, OSError) as error:
        reason = error.reason if isinstance(error, RendererError) else error
        raise RendererError("?", f"none was found: {reason}; name policy.renderer") from error


def _found(directory: Path) -> RendererSettings:
    tokenizer = Tokenizer.load(directory)
    template = JinjaTemplate.load(directory, {})
    wanted = [_text(template, messages, tools) for messages, tools in CONVERSATIONS]
    for family in families():
        with suppress(RendererError):
            settings = RendererSettings(family)
            if _writes(tokenizer, settings, wanted):
                return settings
    settings = RendererSettings(CHAT_TEMPLATE)
    Renderer.load(directory, settings)
    return settings


def _text(template: JinjaTemplate, messages: Messages, tools: Tools | None) -> str | None:
    """Return the prompt that the model's template writes, or None if it refuses the messages."""
    try:
        return template.text(template_messages(messages), tools, ask=True)
    except TemplateRefusal:
        return None


def _writes(tokenizer: Tokenizer, settings: RendererSettings, wanted: list[str | None]) -> bool:
    """Return whether a family writes `wanted`. Raises `RendererError` if it refuses messages."""
    template = ChatTemplate(library_renderer(tokenizer, settings), settings.name)
    return all(
        tokenizer.decode(template.render(messages, tools, ask=True)) == text
        for (messages, tools), text in zip(CONVERSATIONS, wanted, strict=True)
    )
