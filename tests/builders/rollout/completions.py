"""Chunks of tokens as an engine gives them, and completions read as letters."""

from collections.abc import Mapping, Sequence

from seamlessflow.infra.rendering.completion import MessageDelta, ParsedMessage
from seamlessflow.producers.rollout.engine.contract import ChunkSpan, FinishReason, TokenChunk
from seamlessflow.producers.rollout.engine.made_up import logprobs
from seamlessflow.schemas.tokens import pack, unpack


def chunk(
    offset: int,
    tokens: Sequence[int],
    finish_reason: FinishReason | None = None,
    version: int = 7,
    top: int = 0,
) -> TokenChunk:
    """Return tokens of one version, each with `top` alternatives from token * 10 on."""
    spans = (ChunkSpan(offset, version),) if tokens else ()
    top_ids = pack([10 * token + place for token in tokens for place in range(top)])
    top_logprobs = logprobs(len(tokens) * top)
    return TokenChunk(
        *(offset, pack(tokens), logprobs(len(tokens)), spans, finish_reason),
        *(top_ids, top_logprobs),
    )


class Letters:
    """A message stream: each token id is the code of a character."""

    space = ""

    def __init__(self) -> None:
        self._content = ""
        self.finished = False

    def feed(self, ids: bytes) -> MessageDelta:
        text = "".join(map(chr, unpack(ids)))
        self._content += text
        return MessageDelta(content=text)

    def finish(self) -> MessageDelta:
        self.finished = True
        return MessageDelta()

    @property
    def message(self) -> ParsedMessage:
        return ParsedMessage(content=self._content)


class LetterParser:
    """A parser that reads completions as letters; token 0 ends one."""

    stop_token_ids = (0,)
    thinking_marks = (ord("<"), ord(">"))

    def __init__(self) -> None:
        self.prompts: list[bytes] = []
        """Of the streams that were not raw."""

    def stream(self, tools: Sequence[Mapping[str, object]] | None, prompt: bytes) -> Letters:
        self.prompts.append(prompt)
        return Letters()

    def raw_stream(self) -> Letters:
        return Letters()

    def encode(self, text: str) -> bytes:
        return pack(codes(text))


def codes(text: str) -> list[int]:
    """The tokens that `Letters` reads as this text."""
    return [ord(letter) for letter in text]
