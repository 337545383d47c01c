"""A model directory's chat template, as Hugging Face stores it: Jinja, rendered to text.

Templates are code that came with the weights, so they run in Jinja's sandbox and see plain JSON
only. Their date never changes: a session that runs past midnight keeps its prompt.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

from seamlessflow.infra.rendering.model_template.files import (
    CONFIG_FILE,
    TEMPLATE_FILE,
    special_tokens,
    template_source,
)

TODAY = date(2024, 7, 26)
"""Date that templates print: the one that Llama's template falls back to."""

_GIVEN = {"messages", "tools", "add_generation_prompt"}


class TemplateRefusal(ValueError):
    """The template cannot render the messages; the text is the template's own if it has one."""


class JinjaTemplate:
    """Compiled template with the directory's special tokens and further arguments."""

    def __init__(
        self, source: str, special_tokens: Mapping[str, str], options: Mapping[str, object]
    ) -> None:
        """Compile `source`. Raises `TemplateRefusal` if it is no template or lacks an option."""
        self._arguments = {**special_tokens, **options}
        environment = _environment()
        try:
            self._template = environment.from_string(source)
            asked_for = jinja2.meta.find_undeclared_variables(environment.parse(source))
        except jinja2.TemplateError as error:
            raise TemplateRefusal(f"chat template: {error}") from error
        if unknown := sorted(set(options) - (asked_for - _GIVEN)):
            raise TemplateRefusal(f"the template does not read {', '.join(unknown)}")

    @classmethod
    def load(cls, directory: Path, options: Mapping[str, object]) -> "JinjaTemplate":
        """Return a directory's template. Raises `TemplateRefusal`, also if it has none."""
        try:
            source = template_source(directory)
            tokens = special_tokens(directory)
        except (ValueError, OSError) as error:
            raise TemplateRefusal(f"{directory}: {error}") from error
        if source is None:
            reason = f"no {TEMPLATE_FILE} in {directory}, and no chat_template in {CONFIG_FILE}"
            raise TemplateRefusal(reason)
        return cls(source, tokens, options)

    def text(
        self,
        messages: Sequence[Mapping[str, object]],
        tools: Sequence[Mapping[str, object]] | None,
        *,
        ask: bool,
    ) -> str:
        """Return the prompt, with a generation prompt (`ask`) or without.

        Raises `TemplateRefusal`.
        """
        plain = [plain_message(message) for message in messages]
        try:
            return self._template.render(
                messages=plain, tools=tools, add_generation_prompt=ask, **self._arguments
            )
        # Whatever a template does wrong with these messages is a refusal of them.
        except (jinja2.TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise TemplateRefusal(str(error)) from error


def plain_message(message: Mapping[str, object]) -> dict[str, object]:
    """Return a message with tool call arguments as objects, which templates write as JSON."""
    calls: Any = message.get("tool_calls")
    return (
        {**message, "tool_calls": [_with_object(call) for call in calls]} if calls else {**message}
    )


def _with_object(call: Mapping[str, Any]) -> dict[str, object]:
    function = dict(call["function"])
    with suppress(ValueError):  # text that is no JSON stays as it is
        function["arguments"] = json.loads(function["arguments"])
    return {**call, "function": function}


def _environment() -> ImmutableSandboxedEnvironment:
    """Return the environment that templates are written for (`transformers`' filters and tags)."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = TODAY.strftime
    return environment


class _Generation(jinja2.ext.Extension):
    """Tag `generation`, which marks an answer in some templates; it renders what it encloses."""

    tags = {"generation"}  # noqa: RUF012, as Jinja declares it

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node | list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Return JSON as templates want it: without Jinja's escapes for HTML."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
