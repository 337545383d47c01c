"""Bridge: the tokens that the next turn's prompt adds behind the exact ids of the turn before.

Most templates need only the last turn of a prompt for it, so that a bridge costs the same however
long the history is; the probes find the templates that need more. Used by
`infra/rendering/renderer.py`.
"""

from infra.rendering import probes
from infra.rendering.chat_template import ChatTemplate, Messages, Tools
from infra.rendering.settings import RendererError
from schemas.tokens import pack


class Bridge:
    """Implementation of `Renderer.tail` and `Renderer.bridge`."""

    def __init__(self, template: ChatTemplate, samples: list[bytes]) -> None:
        """Try with the completions `samples` which part of a prompt a bridge needs."""
        self._template = template
        prompts = [
            pack(template.render(probes.SHORT, probes.TOOLS, ask=True)),
            pack(template.render(probes.LONG, None, ask=True)),
        ]
        self.from_tail = probes.bridge_needs_only_tail(
            self._try, prompts, template.from_last_stop, samples
        )
        """True if a bridge needs only the last turn of a prompt."""

    def tail(self, prompt: bytes) -> bytes:
        """Return the part of a prompt that `suffix` reads."""
        return self._template.from_last_stop(prompt) if self.from_tail else prompt

    def suffix(
        self, prompt: bytes, completion: bytes, new_messages: Messages, tools: Tools | None
    ) -> bytes | None:
        """Return the ids to append to `prompt + completion`. Raises `RendererError`."""
        return self._template.bridge(self.tail(prompt), completion, new_messages, tools)

    def _try(self, prompt: bytes, completion: bytes, new_messages: Messages) -> bytes | str | None:
        try:
            return self._template.bridge(prompt, completion, new_messages, probes.TOOLS)
        except RendererError as error:
            return error.reason
