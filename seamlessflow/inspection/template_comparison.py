"""Comparison of a renderer's prompts with those of the model's own chat template.

The template is applied by `transformers`, as the model's users do it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seamlessflow.infra.rendering.model_template.discovery import CONVERSATIONS
from seamlessflow.infra.rendering.model_template.jinja import TODAY, plain_message
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.rendering.settings import RendererError

_SHOWN = 30
"""Characters shown on each side of a difference."""

_DIRECTIVES = [f"%{letter}" for letter in ("-d", "-m", *"aAbBdmyYjHIMSpfcxX")]
_FIXED_DATE = (
    "{% macro strftime_now(format) %}{{ format"
    + "".join(
        f" | replace('{directive}', '{TODAY.strftime(directive)}')" for directive in _DIRECTIVES
    )
    + " }}{% endmacro %}\n"
)
"""Begin of a template whose date is that of our prompts: `transformers` would print today's."""


def template_difference(directory: Path, renderer: Renderer) -> str:
    """Return the first difference of sample prompts, empty if there is none.

    Prompts that the renderer refuses are left out (`refused_prompt`). Raises what `transformers`
    raises for a directory without a loadable tokenizer, and `ValueError` for one without a
    template.
    """
    from transformers import AutoTokenizer  # takes seconds to import

    tokenizer: Any = AutoTokenizer.from_pretrained(  # nosec B615 # a local directory
        directory, local_files_only=True
    )
    for messages, tools in CONVERSATIONS:
        try:
            ours = renderer.decode(renderer.render(messages, tools))
        except RendererError:
            continue
        theirs = _applied(tokenizer, messages, tools, renderer.settings.options)
        if ours != theirs:
            return first_difference(ours, theirs)
    return ""


def refused_prompt(renderer: Renderer) -> str:
    """Return why the renderer refuses a sample prompt, empty if it refuses none."""
    for messages, tools in CONVERSATIONS:
        try:
            renderer.render(messages, tools)
        except RendererError as error:
            return error.reason
    return ""


def _applied(
    tokenizer: Any,
    messages: Sequence[Mapping[str, object]],
    tools: Sequence[Mapping[str, object]] | None,
    options: Mapping[str, object],
) -> str:
    """Return the prompt of the model's template, or why it refuses the messages."""
    template = _FIXED_DATE + tokenizer.get_chat_template(tools=tools)
    refusal = ""
    # Most templates take the arguments of a call as an object, some as text.
    for ready in ([plain_message(message) for message in messages], list(messages)):
        try:
            return str(
                tokenizer.apply_chat_template(
                    ready,
                    tools=tools,
                    chat_template=template,
                    tokenize=False,
                    add_generation_prompt=True,
                    **options,
                )
            )
        except Exception as error:  # a template raises whatever it likes
            refusal = refusal or f"(refused: {error})"
    return refusal


def first_difference(ours: str, theirs: str) -> str:
    """Return where two different prompts part, with some text of both."""
    pairs = enumerate(zip(ours, theirs, strict=False))
    place = next((at for at, (our, their) in pairs if our != their), min(len(ours), len(theirs)))
    begin = max(0, place - _SHOWN)
    end = place + _SHOWN
    return (
        f"at character {place} the renderer writes {ours[begin:end]!r}, "
        f"the model's template {theirs[begin:end]!r}"
    )
