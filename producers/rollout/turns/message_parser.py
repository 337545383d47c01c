"""The part of a policy's renderer that the rollout process needs, as a protocol.

`seamlessflow.infra.rendering.renderer.Renderer` implements it.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from seamlessflow.infra.rendering.completion import MessageStream


class MessageParser(Protocol):
    """A parser of completions for one policy. Not for several threads at once."""

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Tokens that end a completion."""

    def stream(self, tools: Sequence[Mapping[str, object]] | None, prompt: bytes) -> MessageStream:
        """Return the parser of one completion of `prompt`."""

    def raw_stream(self) -> MessageStream:
        """Return the parser of one completion of a prompt without a chat template: plain text."""

    def encode(self, text: str) -> bytes:
        """Return the token ids of `text` as int32 bytes."""
