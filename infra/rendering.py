"""Messages to token ids and back, by the `renderers` library. The only file that imports it (about
a second).

Called by the trajectory manager (render, bridge, stream) and the rollout worker (parse). Prompts
and completions are int32 bytes. Nothing sampled is ever tokenised again: a bridge only adds behind
the exact ids.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pydantic
import renderers

from infra import renderer_probes as probes
from infra.chat_messages import template_messages
from infra.completion import (
    Markup,
    MessageStream,
    ParsedMessage,
    PlainStream,
    TaggedStream,
    WholeStream,
)
from infra.forced_calls import NoOpening, find_opening
from infra.renderer_settings import RendererError, RendererSettings, rendering_hash
from infra.tokenizer import TextStream, Tokenizer, TokenizerError, pack, unpack
from infra.tool_calls import MalformedCall, ToolCall, read_call

Messages = Sequence[Mapping[str, object]]
Tools = Sequence[Mapping[str, object]]
Offered = list[Mapping[str, object]] | None
"""Tools as the library takes them; None where there are none."""

NEEDS_MORE_THAN_SETTINGS = frozenset({"auto", "custom", "default"})
"""`auto` guesses by a model's name, `custom` would load code a record names, `default` needs
transformers."""

REFUSALS = (ValueError, TypeError, KeyError, AttributeError, AssertionError, NotImplementedError)
"""What the library's templates raise for messages they cannot take."""


class Renderer:
    """One model family's template on one tokenizer. Not for several threads at once."""

    def __init__(self, tokenizer: Tokenizer, settings: RendererSettings, digest: str) -> None:
        """`Renderer.load` is the usual way. Raises `RendererError`."""
        self.settings = settings
        self.hash = digest
        """Hex; equal for equal tokenizer and settings, on any machine."""
        self._tokenizer = tokenizer
        self._library = _library_renderer(tokenizer, settings)
        self.stop_token_ids: tuple[int, ...] = tuple(self._library.get_stop_token_ids())
        self._stops = frozenset(self.stop_token_ids)
        self._usual_tail = self._from_last_stop(self.render(probes.SHORT))
        samples = list(probes.completions(tokenizer, self._spelt_call(), self.stop_token_ids[0]))
        self._markup = self._find_markup(samples)
        prompts = [self.render(probes.SHORT, probes.TOOLS), self.render(probes.LONG)]
        self.bridges_from_tail = probes.bridge_needs_only_tail(
            self._try_bridge, prompts, self._from_last_stop, samples
        )
        """Whether a bridge needs only the last turn of a prompt; tried at load, never assumed."""

    @classmethod
    def load(cls, tokenizer_dir: Path, settings: RendererSettings) -> "Renderer":
        """Raises `RendererError`, naming the special tokens that the tokenizer lacks, or the wrong
        setting."""
        try:
            tokenizer = Tokenizer.load(tokenizer_dir)
        except TokenizerError as error:
            raise RendererError(settings.name, str(error)) from error
        return cls(tokenizer, settings, rendering_hash(tokenizer_dir, settings))

    def variant(self, settings: RendererSettings) -> "Renderer":
        """Other settings on the same tokenizer. Raises `RendererError`."""
        return Renderer(self._tokenizer, settings, self.hash)

    @property
    def streams(self) -> bool:
        """Whether `stream` gives text as it comes; else all of it comes at the end."""
        return self._markup is not None

    def render(self, messages: Messages, tools: Tools | None = None) -> bytes:
        """The whole prompt with its generation prompt. Raises `RendererError` for messages it
        cannot take."""
        with self._refusals():
            ids = self._library.render_ids(
                template_messages(messages), tools=_offered(tools), add_generation_prompt=True
            )
        return pack(ids)

    def forced_call(
        self, prompt: bytes, messages: Messages, tools: Tools | None, name: str | None
    ) -> bytes:
        """Ids that open a call of function `name`, or of any function, behind the `prompt` of
        `messages`.

        They are to be the prompt's last ones (`GenerateTurn.prefill`): what is sampled behind them
        goes on inside the call. Thinking that the prompt opened is closed first. Raises
        `RendererError` where this template has no such opening, or `prompt` does not end where an
        answer begins.
        """
        offered = _offered(tools)

        def render(messages: Messages, ask: bool) -> list[int]:
            ids: list[int] = self._library.render_ids(
                template_messages(messages), tools=offered, add_generation_prompt=ask
            )
            return ids

        with self._refusals():
            opening = find_opening(render, self._tokenizer, messages, name)
            if not prompt.endswith(pack(opening.generation_prompt)):
                raise NoOpening("the prompt does not end where an answer begins")
            for own, ids in opening.calls.items():
                read = self.parse(pack(ids), tools, prompt).tool_calls
                if [call.name for call in read] != [name or own]:
                    raise NoOpening(f"a call of {name or own} that is opened so is not read")
        return pack(opening.ids)

    def tail(self, prompt: bytes) -> bytes:
        """The part of a prompt that `bridge` and `parse` read: from its last stop token on.

        The whole prompt where it holds none, or where this renderer's bridge needs the history.
        Costs as much as the tail is long; `tail(tail(prompt)) == tail(prompt)`.
        """
        return self._from_last_stop(prompt) if self.bridges_from_tail else prompt

    def bridge(
        self, prompt: bytes, completion: bytes, new_messages: Messages, tools: Tools | None = None
    ) -> bytes | None:
        """Ids to append behind `prompt + completion` so that the next turn can be sampled.

        `prompt` may be its `tail`. What the completion lacks (end of thinking, end of turn) comes
        first. None where the template would change what stands before: for a new user message where
        thinking is not retained, for new assistant messages, after a completion that stopped inside
        its thinking. Raises `RendererError` for messages that cannot be rendered at all.
        """
        return self._bridge(self.tail(prompt), completion, new_messages, tools)

    def parse(
        self, completion: bytes, tools: Tools | None = None, prompt: bytes = b""
    ) -> ParsedMessage:
        """The message of a whole completion; raises nothing, whatever was sampled.

        Without `tools` the markup of tool calls is plain content: an agent that offered none reads
        it itself. `prompt` (its `tail` is enough) tells whether thinking was opened there; without
        it the usual end of a prompt counts.
        """
        stream = self.stream(tools, prompt)
        stream.feed(completion)
        stream.finish()
        return stream.message

    def stream(self, tools: Tools | None = None, prompt: bytes = b"") -> MessageStream:
        """A stream for one completion; all its deltas together equal `parse`. Arguments as
        there."""
        tail = unpack(self._from_last_stop(prompt) or self._usual_tail)
        if self._markup is None:
            return WholeStream(lambda ids: self._parse_whole(unpack(ids), _offered(tools), tail))
        return self._tagged_stream(self._markup, _offered(tools), tail)

    def raw_stream(self) -> MessageStream:
        """A stream for a completion of a prompt without a chat template: plain text, nothing in it
        is markup."""
        return PlainStream(self.text_stream())

    def text_stream(self) -> TextStream:
        """Plain text of ids as they come, without special and stop tokens."""
        return self._tokenizer.text_stream(self._tokenizer.special_ids | self._stops)

    def encode(self, text: str) -> bytes:
        """Ids of `text`; special tokens spelt out in it become their ids."""
        return pack(self._tokenizer.encode(text))

    def decode(self, ids: bytes) -> str:
        """Text of `ids`, special tokens spelt out."""
        return self._tokenizer.decode(unpack(ids))

    def _bridge(
        self, prompt: bytes, completion: bytes, new_messages: Messages, tools: Tools | None
    ) -> bytes | None:
        turn, sampled = unpack(prompt), unpack(completion)
        with self._refusals():
            rendered = self._library.bridge_to_next_turn(
                turn, sampled, template_messages(new_messages), tools=_offered(tools)
            )
        if rendered is None:
            return None
        before = turn + sampled
        ids: list[int] = rendered.token_ids
        # A bridge may cut off what was sampled behind the end of the turn; sampled ids must stay.
        return pack(ids[len(before) :]) if ids[: len(before)] == before else None

    def _try_bridge(
        self, prompt: bytes, completion: bytes, new_messages: Messages
    ) -> bytes | str | None:
        try:
            return self._bridge(prompt, completion, new_messages, probes.TOOLS)
        except RendererError as error:
            return error.reason

    def _from_last_stop(self, prompt: bytes) -> bytes:
        ids = memoryview(prompt).cast("i")
        for place in range(len(ids) - 1, -1, -1):
            if ids[place] in self._stops:
                return prompt[4 * place :]
        return prompt

    def _tagged_stream(self, markup: Markup, tools: Offered, tail: list[int]) -> TaggedStream:
        return TaggedStream(
            markup if tools else markup.without_tools(),
            self._tokenizer,
            lambda block: self._parse_block(block, tools),
            in_reasoning=markup.opens_reasoning(tail),
        )

    def _parse_block(self, block: list[int], tools: Offered) -> tuple[ToolCall, ...]:
        try:
            calls = self._library.parse_response(block, tools=tools).tool_calls
        except (ValueError, RecursionError) as error:  # a number too long, brackets too deep
            raise MalformedCall("invalid_json") from error
        if not calls:
            raise MalformedCall("malformed_structure")
        return tuple(_tool_call(call) for call in calls)

    def _parse_whole(self, ids: list[int], tools: Offered, tail: list[int]) -> ParsedMessage:
        try:
            parsed = self._library.parse_response(ids, tools=tools, prompt_ids=tail)
        except Exception:  # a parser that trips over what was sampled must not end a worker
            return ParsedMessage(self._tokenizer.decode(ids), malformed=("unparsable",))
        content: list[str] = [parsed.content]
        calls: list[ToolCall] = []
        malformed: list[str] = []
        for call in parsed.tool_calls:
            try:
                calls.append(_tool_call(call, offered=tools is not None))
            except MalformedCall as error:
                malformed += [error.reason] if tools else []
                content.append(self._block_text(call, ids))
        reasoning: str | None = parsed.reasoning_content
        return ParsedMessage(
            content="\n".join(filter(None, content)).strip(),
            reasoning=None if reasoning is None else reasoning.strip(),
            tool_calls=tuple(calls),
            malformed=tuple(malformed),
            reasoning_closed=parsed.reasoning_complete is not False,
            reasoning_tokens=self._reasoning_tokens(parsed, ids),
        )

    def _reasoning_tokens(self, parsed: Any, ids: list[int]) -> int | None:
        """Known where a token of its own ends the thinking."""
        if parsed.reasoning_content is None:
            return 0
        end = self._tokenizer.token_id("</think>")
        if end is None:
            return None
        closed = parsed.reasoning_complete is not False and end in ids
        return ids.index(end) + 1 if closed else len(ids)

    def _block_text(self, call: Any, ids: list[int]) -> str:
        if call.token_span is None:
            return str(call.raw)
        start, end = call.token_span
        return self._tokenizer.decode(ids[start:end])

    def _spelt_call(self) -> list[int]:
        """What the model would have sampled for a tool call, without the stop token; empty if it
        knows no tools."""
        with suppress(*REFUSALS):
            rendered = self._library.render(
                template_messages([*probes.SHORT, probes.CALL]), tools=probes.TOOLS
            )
            marked = zip(rendered.token_ids, rendered.sampled_mask, strict=False)
            return [token for token, sampled in marked if sampled and token not in self._stops]
        return []

    def _find_markup(self, samples: list[bytes]) -> Markup | None:
        """The markup of an incremental reading, where that reads all samples as the library
        does."""
        token_id = self._tokenizer.token_id
        ids = [token_id(t) for t in ("<think>", "</think>", "<tool_call>", "</tool_call>")]
        match ids:
            case [int(think), int(think_end), int(tool_call), int(tool_call_end)]:
                markup = Markup(self._stops, think, think_end, tool_call, tool_call_end)
            case _:
                return None
        return markup if all(self._reads_as_library(markup, ids) for ids in samples) else None

    def _reads_as_library(self, markup: Markup, completion: bytes) -> bool:
        tail = unpack(self._usual_tail)
        stream = self._tagged_stream(markup, probes.TOOLS, tail)
        stream.feed(completion)
        stream.finish()
        theirs = self._parse_whole(unpack(completion), probes.TOOLS, tail)
        return probes.same_message(stream.message, theirs)

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except REFUSALS as error:
            raise RendererError(self.settings.name, f"cannot render: {error}") from error


def _library_renderer(tokenizer: Tokenizer, settings: RendererSettings) -> Any:
    config = _config(settings)
    try:
        return renderers.create_renderer(tokenizer, config)
    except Exception as error:
        asked = _Asked(tokenizer)
        with suppress(Exception):  # its tokens are made up; only what was asked for counts
            renderers.create_renderer(asked, config)
        reason = f"the tokenizer lacks {', '.join(asked.missing)}" if asked.missing else str(error)
        raise RendererError(settings.name, reason) from error


def _config(settings: RendererSettings) -> Any:
    if settings.name in NEEDS_MORE_THAN_SETTINGS:
        raise RendererError(settings.name, "name the model family instead (qwen3, llama-3, ...)")
    fields = {**settings.options, "name": settings.name}
    if settings.thinking_retention is not None:
        fields["thinking_retention"] = settings.thinking_retention
    try:
        return pydantic.TypeAdapter[object](renderers.RendererConfig).validate_python(fields)
    except pydantic.ValidationError as error:
        raise RendererError(settings.name, f"settings: {error}") from error


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


def _offered(tools: Tools | None) -> Offered:
    return list(tools) if tools else None


def _tool_call(call: Any, *, offered: bool = True) -> ToolCall:
    """The library's reading of one block. Raises `MalformedCall`."""
    if call.status != renderers.ToolCallParseStatus.OK or not offered:
        raise MalformedCall(str(call.status.value))
    return read_call(call.name, call.arguments, call.raw, call.id)
