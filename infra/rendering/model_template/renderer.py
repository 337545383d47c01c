"""Renderer for any model's own chat template, with the library renderers' interface.

A template says how a whole conversation is written. How to go on from sampled tokens is found by
trying (`properties.py`, `differences.py`). Thinking in completions is known if the tokenizer has a
token for each of its two marks.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from seamlessflow.infra.rendering import probes
from seamlessflow.infra.rendering.differences import GenerationPrompts, behind_answer
from seamlessflow.infra.rendering.library import (
    LibraryCall,
    LibraryRenderer,
    OfferedTools,
    TemplateMessage,
    library_renderer,
)
from seamlessflow.infra.rendering.model_template.files import end_token_ids
from seamlessflow.infra.rendering.model_template.jinja import JinjaTemplate, TemplateRefusal
from seamlessflow.infra.rendering.model_template.properties import (
    answer_text,
    properties_of,
    with_short_ids,
)
from seamlessflow.infra.rendering.probes import Message
from seamlessflow.infra.rendering.settings import CHAT_TEMPLATE, RendererError, RendererSettings
from seamlessflow.infra.rendering.tokenizer import Tokenizer
from seamlessflow.schemas.identity import turn_of_tool_call


@dataclass(slots=True)
class RenderedIds:
    """Rendered tokens, as `library.RenderedTokens` has them."""

    token_ids: list[int]
    sampled_mask: list[bool] = field(default_factory=list)


@dataclass(slots=True)
class ReadAnswer:
    """Parsed completion, as `library.LibraryMessage` has it."""

    content: str
    reasoning_content: str | None = None
    tool_calls: Sequence[LibraryCall] = ()
    reasoning_complete: bool | None = True


def renderer_for(tokenizer: Tokenizer, settings: RendererSettings) -> LibraryRenderer:
    """Return the library's renderer for a family, or one for the model's own template.

    Raises `RendererError`.
    """
    if settings.name != CHAT_TEMPLATE:
        return library_renderer(tokenizer, settings)
    try:
        return TemplateRenderer(tokenizer, settings)
    except TemplateRefusal as error:
        raise RendererError(
            settings.name, f"the model's template cannot be used: {error}"
        ) from error


class TemplateRenderer:
    """Implementation of `library.LibraryRenderer`. Raises `TemplateRefusal`, a `ValueError`."""

    def __init__(self, tokenizer: Tokenizer, settings: RendererSettings) -> None:
        if tokenizer.directory is None:
            raise TemplateRefusal("the tokenizer was not read from a directory")
        self._template = JinjaTemplate.load(tokenizer.directory, settings.options)
        self._tokenizer = tokenizer
        self._thinking = _Thinking(tokenizer)
        self._has = has = properties_of(self._template, tokenizer)
        keeps = settings.thinking_retention == "all"
        self.effective_thinking_retention = "all" if keeps else "template"
        named = [*end_token_ids(tokenizer.directory), tokenizer.eos_token_id]
        ends = [token_id for token_id in named if token_id is not None]
        self._stops = list(dict.fromkeys([has.close_id, *ends]))
        self._generation = GenerationPrompts(self._prompt)
        self._texts = self._histories(probes.TEXT)
        self._calls = self._histories(probes.CALL) if has.calls is not None else []
        self._check_bridges()

    def get_stop_token_ids(self) -> list[int]:
        """Return the token that the template writes behind an answer, then the model's others."""
        return self._stops

    def render_ids(
        self, messages: list[TemplateMessage], *, tools: OfferedTools, add_generation_prompt: bool
    ) -> list[int]:
        return self._tokenizer.encode(self._text(messages, tools, add_generation_prompt))

    def render(self, messages: list[TemplateMessage], *, tools: OfferedTools) -> RenderedIds:
        """Return the last message as the model would sample it."""
        ready = self._ready(messages, tools)
        spelt = answer_text(self._template, ready, tools, self._has.close)
        ids = self._tokenizer.encode(spelt or "")
        return RenderedIds(ids, [True] * len(ids))

    def bridge_to_next_turn(
        self,
        previous_prompt_ids: list[int],
        previous_completion_ids: list[int],
        new_messages: list[TemplateMessage],
        *,
        tools: OfferedTools,
    ) -> RenderedIds | None:
        completion = self._ended(previous_completion_ids, previous_prompt_ids)
        if completion is None or not previous_prompt_ids:
            return None
        read = self.parse_response(completion, tools=tools, prompt_ids=previous_prompt_ids)
        added = self._added(_with_sampled_ids(new_messages, read.tool_calls), tools)
        if added is None:
            return None
        # Behind its stop token the text is tokenised as in a whole prompt.
        behind = self._tokenizer.encode(self._has.close + added)[1:]
        return RenderedIds([*previous_prompt_ids, *completion, *behind])

    def parse_response(
        self, token_ids: list[int], *, tools: OfferedTools, prompt_ids: list[int] | None = None
    ) -> ReadAnswer:
        stops = [place for place, token in enumerate(token_ids) if token in self._stops]
        split = self._thinking.split(
            token_ids[: stops[0]] if stops else token_ids, self._generation.end_of(prompt_ids or [])
        )
        decode = self._tokenizer.decode
        thought = None if split.thinking is None else decode(split.thinking).strip()
        if not split.closed:
            return ReadAnswer("", thought, reasoning_complete=False)
        text = decode(split.rest).strip()
        if not tools or self._has.calls is None:
            return ReadAnswer(text, thought)
        text, calls = self._has.calls.read(text)
        return ReadAnswer(text.strip(), thought, calls)

    def _ended(self, completion: list[int], prompt: list[int]) -> list[int] | None:
        """Return the completion with its stop token; None if nothing can follow it."""
        stops = [place for place, token in enumerate(completion) if token in self._stops]
        if stops and stops[0] != len(completion) - 1:
            return None
        if not self._thinking.split(completion, self._generation.end_of(prompt)).closed:
            return None
        return completion if stops else [*completion, self._has.close_id]

    def _added(self, new_messages: Sequence[Message], tools: OfferedTools) -> str | None:
        """Return what the template writes for new messages; None if it must not be appended."""
        roles = [str(message["role"]) for message in new_messages]
        keeps = self.effective_thinking_retention == "all"
        if not keeps and ("user" if "user" in roles else "tool") in self._has.forgets:
            return None
        histories = self._calls if roles[:1] == ["tool"] else self._texts
        if len(histories) < 2:  # nothing to compare with
            return None
        with suppress(TemplateRefusal):
            return behind_answer(
                lambda messages, ask: self._text(messages, tools, ask),
                self._ends,
                histories,
                new_messages,
                thinking_stays=keeps,
            )
        return None

    def _ends(self, text: str) -> list[int]:
        pieces = text.split(self._has.close)
        ends = []
        place = 0
        for piece in pieces[:-1]:
            place += len(piece) + len(self._has.close)
            ends.append(place)
        return ends

    def _histories(self, answer: Message) -> list[Sequence[Message]]:
        """Return the first two sample histories that the template does not refuse."""
        rendered: list[Sequence[Message]] = []
        keeps = self.effective_thinking_retention == "all"
        for history in probes.answered(answer, thinking=self._thinking.has_marks and not keeps):
            with suppress(TemplateRefusal):
                self._text(history, probes.TOOLS if answer is probes.CALL else None, True)
                rendered.append(history)
        return rendered[:2]

    def _check_bridges(self) -> None:
        """Raise `TemplateRefusal` if nothing can follow sampled tokens."""
        results, asked = probes.NEW_MESSAGES
        tools = [*probes.TOOLS] if self._has.calls is not None else None
        if self._added(asked, None) is None and (
            tools is None or self._added(results, tools) is None
        ):
            if "user" in self._has.forgets:
                remedy = "set thinking_retention to all to keep it"
                raise TemplateRefusal(f"it removes thinking of earlier turns; {remedy}")
            raise TemplateRefusal("what it writes behind an answer depends on what stands before")

    def _prompt(self, messages: Sequence[Message]) -> list[int]:
        called = any(message["role"] == "tool" for message in messages)
        return self._tokenizer.encode(self._text(messages, probes.TOOLS if called else None, True))

    def _text(self, messages: Sequence[Message], tools: OfferedTools, ask: bool) -> str:
        return self._template.text(self._ready(messages, tools), tools, ask=ask)

    def _ready(self, messages: Sequence[Message], tools: OfferedTools) -> Sequence[Message]:
        """Return messages as the template takes them. Raises `TemplateRefusal` if it drops any."""
        has = self._has
        if not messages:
            raise TemplateRefusal("there are no messages")
        called = any(message.get("tool_calls") or message["role"] == "tool" for message in messages)
        if has.no_tools and (tools or called):
            remedy = "leave them out, or describe them in the text of a message"
            raise TemplateRefusal(
                f"tools cannot be used with the model's template: {has.no_tools}; {remedy}"
            )
        if not has.writes_system and any(message["role"] == "system" for message in messages):
            raise TemplateRefusal("the model's template leaves out system messages")
        return with_short_ids(messages) if has.short_ids else messages


def _with_sampled_ids(
    new_messages: Sequence[Message], calls: Sequence[LibraryCall]
) -> Sequence[Message]:
    """Return tool results under the ids that the model sampled, if it samples ids."""
    sampled = [call.id for call in calls]
    ready = []
    for message in new_messages:
        public = str(message.get("tool_call_id", ""))
        number = public.rpartition("_")[2] if turn_of_tool_call(public) is not None else ""
        sampled_id = sampled[int(number)] if number and int(number) < len(sampled) else None
        ready.append({**message, "tool_call_id": sampled_id} if sampled_id is not None else message)
    return ready


@dataclass(frozen=True, slots=True)
class _Split:
    """Completion without its stop token; `thinking` is None if there is none."""

    thinking: list[int] | None
    rest: list[int]
    closed: bool = True


class _Thinking:
    """Marks around thinking; without them no completion has any."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._begin = tokenizer.token_id("<think>")
        self._end = tokenizer.token_id("</think>")
        self._blank = frozenset(tokenizer.encode("\n") + tokenizer.encode("\n\n"))

    @property
    def has_marks(self) -> bool:
        """True if the tokenizer has both marks."""
        return None not in (self._begin, self._end)

    def split(self, completion: list[int], generation_prompt: list[int]) -> _Split:
        """Return a completion's thinking and its rest.

        The generation prompt may have opened the thinking.
        """
        marks = [token for token in generation_prompt if token in (self._begin, self._end)]
        opened = bool(marks) and marks[-1] == self._begin
        begin = 0
        if self.has_marks and not opened:
            while begin < len(completion) and completion[begin] in self._blank:
                begin += 1
            opened = begin < len(completion) and completion[begin] == self._begin
            begin += opened
        if not self.has_marks or not opened:
            return _Split(None, completion)
        if self._end not in completion:
            return _Split(completion[begin:], [], closed=False)
        end = completion.index(self._end)
        return _Split(completion[begin:end], completion[end + 1 :])
