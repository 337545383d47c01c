"""Comparison of a renderer's prompts and tokens with what the model's own files give.

`transformers` applies template and tokenizer, as for the model's users.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seamlessflow.infra.rendering.model_template.discovery import CONVERSATIONS
from seamlessflow.infra.rendering.model_template.jinja import TODAY, plain_message
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.rendering.settings import RendererError
from seamlessflow.schemas.tokens import unpack

_SHOWN = 30
"""Characters shown on each side of a difference."""

_TEXTS = (
    "two  spaces\n\n\tand a tab",
    "e\u0301 \u00e9 \u212b",
    "12345 3.14",
    "\u4f60\u597d",
    "\U0001f600",
)
"""Texts that tokenizers split, normalise and spell in different ways."""

_DIRECTIVES = [f"%{letter}" for letter in ("-d", "-m", *"aAbBdmyYjHIMSpfcxX")]
_FIXED_DATE = (
    "{% macro strftime_now(format) %}{{ format"
    + "".join(
        f" | replace('{directive}', '{TODAY.strftime(directive)}')" for directive in _DIRECTIVES
    )
    + " }}{% endmacro %}\n"
)
"""Text before a template, which fixes its date to our prompts' date instead of today's."""


def transformers_tokenizer(directory: Path) -> Any:
    """Return a directory's tokenizer as the model's users load it.

    Raises what `transformers` raises if it cannot load the tokenizer.
    """
    from transformers import AutoTokenizer  # takes seconds to import

    return AutoTokenizer.from_pretrained(  # nosec B615 # a local directory
        directory, local_files_only=True
    )


def token_difference(tokenizer: Any, renderer: Renderer) -> str:
    """Return the first sample text with other ids in `tokenizer`, empty if there is none.

    Some `transformers` classes exchange parts of `tokenizer.json`, such as its normalizer.
    """
    for text in _TEXTS:
        ours = unpack(renderer.encode(text))
        theirs = tokenizer(text, add_special_tokens=False)["input_ids"]
        if ours != theirs:
            name = type(tokenizer).__name__
            return f"tokenizer.json reads {text!a} as {ours}, {name} of transformers as {theirs}"
    return ""


def template_difference(tokenizer: Any, renderer: Renderer) -> str:
    """Return the first difference between sample prompts, empty if there is none.

    Prompts that the renderer refuses are left out (`refused_prompt`). Raises `ValueError` if the
    `transformers` tokenizer has no template.
    """
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
    """Return the prompt that the model's template gives, or why it refuses the messages."""
    template = _FIXED_DATE + tokenizer.get_chat_template(tools=tools)
    refusal = ""
    # Most templates take a call's arguments as an object, some as text.
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
