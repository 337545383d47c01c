"""The part of `seamlessflow.infra.rendering.renderer.Renderer` that matching uses, as protocols."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

Messages = Sequence[Mapping[str, Any]]


class TextEncoder(Protocol):
    """A tokenizer and its stop tokens: enough to match plain text."""

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Tokens that end a message or a completion; no plain text contains them."""
        ...

    def encode(self, text: str) -> bytes:
        """Return the ids of a plain text."""
        ...

    def decode(self, ids: bytes) -> str:
        """Return the text of `ids`."""
        ...


class PromptRenderer(TextEncoder, Protocol):
    """A chat template with its tokenizer: enough to match messages."""

    def render(self, messages: Messages, tools: Messages | None = None) -> bytes:
        """Return the ids of the whole prompt."""
        ...

    def forced_call(
        self, prompt: bytes, messages: Messages, tools: Messages | None, name: str | None
    ) -> bytes:
        """Return the ids that open a call of function `name`, or of any, behind the prompt."""
        ...

    def tail(self, prompt: bytes) -> bytes:
        """Return the end of a prompt, as much as `bridge` needs."""
        ...

    def bridge(
        self,
        prompt: bytes,
        completion: bytes,
        new_messages: Messages,
        tools: Messages | None = None,
    ) -> bytes | None:
        """Return the ids to append, or None if the template would change earlier tokens."""
        ...
