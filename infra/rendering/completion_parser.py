"""Parser for one model family's completions, by the `renderers` library or incrementally.

The library parses whole completions only. The incremental parser is used if it knows the model's
markup and gives the library's results for the probes (`streams`).
"""

from collections.abc import Sequence

from seamlessflow.infra.rendering import probes
from seamlessflow.infra.rendering.completion import MessageStream, ParsedMessage, WholeStream
from seamlessflow.infra.rendering.differences import GenerationPrompts
from seamlessflow.infra.rendering.library import (
    OK,
    LibraryCall,
    LibraryMessage,
    LibraryRenderer,
    OfferedTools,
)
from seamlessflow.infra.rendering.tagged_stream import Markup, TaggedStream
from seamlessflow.infra.rendering.tokenizer import Tokenizer
from seamlessflow.infra.rendering.tool_calls import MalformedCall, ToolCall, read_call
from seamlessflow.schemas.tokens import unpack

MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
ABSENT = -1
"""Id for a mark that the tokenizer does not have; no token has this id."""


class CompletionParser:
    """Parser that was tried with `samples`: completions for a prompt that ends in `usual_tail`."""

    def __init__(
        self,
        library: LibraryRenderer,
        tokenizer: Tokenizer,
        stops: frozenset[int],
        samples: Sequence[bytes],
        usual_tail: bytes,
        generation: GenerationPrompts,
    ) -> None:
        self._library = library
        self._tokenizer = tokenizer
        self._generation = generation
        self._usual_tail = generation.end_of(unpack(usual_tail))
        self._markup = self._find_markup(stops, samples, probes.TOOLS)
        # Only whole completions show calls that have no tokens of their own; text streams at once.
        self._plain_markup = self._markup or self._find_markup(stops, samples, None)

    @property
    def streams(self) -> bool:
        """True if streams return text as its tokens arrive, also where tools are offered."""
        return self._markup is not None

    def stream(self, tools: OfferedTools, tail: bytes) -> MessageStream:
        """Return a stream for one completion of a prompt whose last turn is `tail`.

        An empty `tail` stands for the usual one. Without `tools`, tool call markup is text.
        """
        before = self._generation.end_of(unpack(tail)) if tail else self._usual_tail
        markup = self._markup if tools else self._plain_markup
        if markup is None:
            return WholeStream(lambda ids: self._parse_whole(unpack(ids), tools, before))
        return self._tagged_stream(markup, tools, before)

    def _find_markup(
        self, stops: frozenset[int], samples: Sequence[bytes], tools: OfferedTools
    ) -> Markup | None:
        """Return the markup for the incremental parser, or None if it disagrees on a sample."""
        token_ids = map(self._tokenizer.token_id, MARKS)
        markup = Markup(
            stops, *(ABSENT if token_id is None else token_id for token_id in token_ids)
        )
        agrees = (self._agrees_with_library(markup, ids, tools) for ids in samples)
        return markup if all(agrees) else None

    def _agrees_with_library(self, markup: Markup, completion: bytes, tools: OfferedTools) -> bool:
        stream = self._tagged_stream(markup, tools, self._usual_tail)
        stream.feed(completion)
        stream.finish()
        theirs = self._parse_whole(unpack(completion), tools, self._usual_tail)
        return probes.same_message(stream.message, theirs)

    def _tagged_stream(self, markup: Markup, tools: OfferedTools, tail: list[int]) -> TaggedStream:
        return TaggedStream(
            markup if tools else markup.without_tools(),
            self._tokenizer,
            lambda block: self._parse_block(block, tools),
            in_reasoning=markup.opens_reasoning(tail),
        )

    def _parse_block(self, block: list[int], tools: OfferedTools) -> tuple[ToolCall, ...]:
        try:
            calls = self._library.parse_response(block, tools=tools).tool_calls
        except (ValueError, RecursionError) as error:  # a number too long, brackets too deep
            raise MalformedCall("invalid_json") from error
        if not calls:
            raise MalformedCall("malformed_structure")
        return tuple(_tool_call(call) for call in calls)

    def _parse_whole(self, ids: list[int], tools: OfferedTools, tail: list[int]) -> ParsedMessage:
        try:
            parsed = self._library.parse_response(ids, tools=tools, prompt_ids=tail)
        except Exception:  # an error in the library, caused by sampled text, must not end a worker
            return ParsedMessage(self._tokenizer.decode(ids), malformed=("unparsable",))
        calls, malformed, texts = self._sort_calls(parsed, ids, offered=tools is not None)
        reasoning = parsed.reasoning_content
        return ParsedMessage(
            content="\n".join(filter(None, [parsed.content, *texts])).strip(),
            reasoning=None if reasoning is None else reasoning.strip(),
            tool_calls=tuple(calls),
            malformed=tuple(malformed) if tools else (),
            reasoning_closed=parsed.reasoning_complete is not False,
            reasoning_tokens=self._reasoning_tokens(parsed, ids),
        )

    def _sort_calls(
        self, parsed: LibraryMessage, ids: list[int], *, offered: bool
    ) -> tuple[list[ToolCall], list[str], list[str]]:
        """Return the valid calls, the malformed calls' reasons, and the malformed calls' texts."""
        calls = []
        reasons = []
        texts = []
        for call in parsed.tool_calls:
            try:
                calls.append(_tool_call(call, offered=offered))
            except MalformedCall as error:
                reasons.append(error.reason)
                texts.append(self._block_text(call, ids))
        return calls, reasons, texts

    def _reasoning_tokens(self, parsed: LibraryMessage, ids: list[int]) -> int | None:
        """Return how many tokens are thinking, or None if no single token ends it."""
        if parsed.reasoning_content is None:
            return 0
        end = self._tokenizer.token_id("</think>")
        if end is None:
            return None
        closed = parsed.reasoning_complete is not False and end in ids
        return ids.index(end) + 1 if closed else len(ids)

    def _block_text(self, call: LibraryCall, ids: list[int]) -> str:
        if call.token_span is None:
            return call.raw
        start, end = call.token_span
        return self._tokenizer.decode(ids[start:end])


def _tool_call(call: LibraryCall, *, offered: bool = True) -> ToolCall:
    """Return the library's result for one block as a call. Raises `MalformedCall`."""
    if call.status != OK or not offered:
        raise MalformedCall(str(call.status))
    return read_call(call.name, call.arguments, call.raw, call.id)
