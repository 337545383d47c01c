"""What a rollout worker needs of a policy's renderer; `infra.rendering`'s has it."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from infra.rendering.completion import MessageStream


class MessageParser(Protocol):
    """Not for several threads at once."""

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Tokens that end a completion."""

    def stream(self, tools: Sequence[Mapping[str, object]] | None, prompt: bytes) -> MessageStream:
        """A stream for one completion of `prompt`."""

    def raw_stream(self) -> MessageStream:
        """A stream for one completion of a prompt without a chat template: plain text."""

    def encode(self, text: str) -> bytes:
        """Ids of `text`, int32."""
