"""A chat template's properties, found by rendering a few messages. Pure.

A template silently drops what it does not know. So each property is tried once. What a template
lacks is refused later instead of being left out of prompts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from seamlessflow.infra.rendering import probes
from seamlessflow.infra.rendering.library import OK
from seamlessflow.infra.rendering.model_template.calls import CallFormat
from seamlessflow.infra.rendering.model_template.jinja import JinjaTemplate, TemplateRefusal
from seamlessflow.infra.rendering.probes import Message
from seamlessflow.infra.rendering.tokenizer import Tokenizer

_MUSING = "<think>\nmusing\n</think>\n\n"


@dataclass(frozen=True, slots=True)
class Properties:
    """A template's properties on a tokenizer."""

    close: str
    """Special token that the template writes behind an answer."""
    close_id: int
    writes_system: bool
    short_ids: bool
    """True if tool call ids must have nine letters."""
    calls: CallFormat | None
    no_tools: str
    """Reason why tools are refused; empty if they are not."""
    forgets: frozenset[str]
    """Roles whose new messages make the template leave out earlier thinking."""


def properties_of(template: JinjaTemplate, tokenizer: Tokenizer) -> Properties:
    """Return the properties. Raises `TemplateRefusal` if an indispensable one is missing."""
    close, close_id = _close(template, tokenizer)
    short_ids = _needs_short_ids(template)
    calls, no_tools = _tools(template, close, short_ids)
    return Properties(
        close,
        close_id,
        _writes_system(template),
        short_ids,
        calls,
        no_tools,
        _forgets(template, tokenizer, short_ids),
    )


def with_short_ids(messages: Sequence[Message]) -> list[Message]:
    """Return messages with nine letters in each call id: its last nine, or zeros before them."""
    return [_shortened(message) for message in messages]


def short_id(call_id: object) -> str:
    """Return an id's last nine letters and digits, with zeros before a shorter id."""
    letters = "".join(letter for letter in str(call_id) if letter.isalnum())
    return letters[-9:].rjust(9, "0")


def _shortened(message: Message) -> Message:
    short = dict(message)
    if "tool_call_id" in message:
        short["tool_call_id"] = short_id(message["tool_call_id"])
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        short["tool_calls"] = [{**call, "id": short_id(call.get("id"))} for call in calls]
    return short


def _close(template: JinjaTemplate, tokenizer: Tokenizer) -> tuple[str, int]:
    """Return the token that ends an answer, as text and id."""
    answer = str(probes.TEXT["content"])
    texts = [template.text([*probes.SHORT, probes.TEXT], None, ask=ask) for ask in (True, False)]
    if any(answer not in text for text in texts):
        raise TemplateRefusal("it leaves out the text of answers")
    firsts = {
        _first_special(text[text.rindex(answer) + len(answer) :], tokenizer) for text in texts
    }
    close = firsts.pop()
    # A token that stands only in the generation prompt begins the next answer.
    if firsts or close is None:
        raise TemplateRefusal("it writes no special token behind an answer, so turns have no end")
    text = texts[0]
    token = tokenizer.decode(close)
    end = text.index(token, text.rindex(answer)) + len(token)
    if tokenizer.encode(text) != [
        *tokenizer.encode(text[:end]),
        *tokenizer.encode(token + text[end:])[1:],
    ]:
        raise TemplateRefusal(f"text behind {token} is tokenised otherwise than by itself")
    return token, close


def _first_special(text: str, tokenizer: Tokenizer) -> int | None:
    """Return a text's first special token, or None if other text stands before it."""
    ids = tokenizer.encode(text)
    places = [place for place, token_id in enumerate(ids) if token_id in tokenizer.special_ids]
    blank = places and not tokenizer.decode(ids[: places[0]]).strip()
    return ids[places[0]] if blank else None


def _needs_short_ids(template: JinjaTemplate) -> bool:
    called = [*probes.SHORT, probes.CALL, *probes.NEW_MESSAGES[0]]
    if _text(template, called, probes.TOOLS):
        return False
    return _text(template, with_short_ids(called), probes.TOOLS) is not None


def _tools(template: JinjaTemplate, close: str, short_ids: bool) -> tuple[CallFormat | None, str]:
    """Return the calls' spelling, or None and the reason why tools are refused."""
    messages = [*probes.SHORT, probes.CALL, *probes.NEW_MESSAGES[0]]
    asked, *rest = with_short_ids(messages) if short_ids else messages
    try:
        begun = template.text([asked], probes.TOOLS, ask=True)
        whole = template.text([asked, *rest], probes.TOOLS, ask=True)
    except TemplateRefusal as error:
        return None, f"it refuses tools ({error})"
    if "probe" not in begun:
        return None, "it does not write tools"
    if str(probes.NEW_MESSAGES[0][0]["content"]) not in whole:
        return None, "it does not write results of tools"
    spelt = answer_text(template, [asked, rest[0]], probes.TOOLS, close)
    calls = CallFormat.from_call(spelt or "")
    if calls is None:
        return None, "it does not write calls as JSON with name and arguments"
    read = [
        (attempt.name, attempt.arguments, attempt.status) for attempt in calls.read(spelt or "")[1]
    ]
    if read != [("probe", {"text": "a"}, OK)]:
        return None, "a call that it writes is not read back"
    return calls, ""


def answer_text(
    template: JinjaTemplate,
    messages: Sequence[Message],
    tools: Sequence[Message] | None,
    close: str,
) -> str | None:
    """Return the last message as a model would sample it, without `close`; None if unknown."""
    whole = template.text(messages, tools, ask=True)
    for ask in (True, False):
        before = template.text(messages[:-1], tools, ask=ask)
        if whole.startswith(before):
            return whole[len(before) :].partition(close)[0]
    return None


def _writes_system(template: JinjaTemplate) -> bool:
    """Return False if the template leaves out system messages without refusing them."""
    text = _text(template, [{"role": "system", "content": "be brief"}, *probes.SHORT], None)
    return text is None or "be brief" in text


def _forgets(template: JinjaTemplate, tokenizer: Tokenizer, short_ids: bool) -> frozenset[str]:
    if tokenizer.token_id("</think>") is None:
        return frozenset()
    results, asked = probes.NEW_MESSAGES
    forgotten = set()
    for answer, new in ((probes.CALL, results), (probes.TEXT, asked)):
        spelt = {**answer, "content": _MUSING + str(answer["content"])}
        named = {**answer, "reasoning_content": "musing"}
        texts = []
        for thought in (spelt, named):
            messages = [*probes.SHORT, thought, *new]
            ready = with_short_ids(messages) if short_ids else messages
            texts.append(_text(template, ready, probes.TOOLS if new is results else None) or "")
        if not any("musing" in text for text in texts):
            forgotten.add(str(new[0]["role"]))
    return frozenset(forgotten)


def _text(
    template: JinjaTemplate, messages: Sequence[Message], tools: Sequence[Message] | None
) -> str | None:
    """Return the prompt, or None if the template refuses it."""
    try:
        return template.text(messages, tools, ask=True)
    except TemplateRefusal:
        return None
