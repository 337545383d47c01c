"""Bridge: the tokens that the next turn's prompt adds behind the previous turn's exact ids.

Most templates need only a prompt's last turn for it. Then a bridge costs the same however long the
history is. The probes find the templates that need more. Used by `infra/rendering/renderer.py`.

The library bridges only to user and tool messages. This module also bridges to answers that the
policy did not sample, and to no message at all. It takes the difference between two renderings, and
puts it behind the turn's end. That end comes from the library's bridge to a sample message.
"""

from contextlib import suppress

from seamlessflow.infra.rendering import probes
from seamlessflow.infra.rendering.chat_template import ChatTemplate, Messages, Tools
from seamlessflow.infra.rendering.differences import behind_answer
from seamlessflow.infra.rendering.settings import RendererError
from seamlessflow.schemas.tokens import pack


class Bridge:
    """Implementation of `Renderer.tail` and `Renderer.bridge`."""

    def __init__(self, template: ChatTemplate, samples: list[bytes]) -> None:
        """Find out, with the completions `samples`, which part of a prompt a bridge needs."""
        self._template = template
        prompts = [
            prompt
            for messages, tools in ((probes.SHORT, probes.TOOLS), (probes.LONG, None))
            if (prompt := self._prompt(messages, tools)) is not None
        ]
        self.from_tail = probes.bridge_needs_only_tail(
            self._try, prompts, template.from_last_stop, samples
        )
        """True if a bridge needs only a prompt's last turn."""
        thinking = not template.thinking_stays
        self._answered = self._renderable(probes.answered(probes.TEXT, thinking=thinking))
        self._called = self._renderable(probes.answered(probes.CALL, thinking=thinking))
        added = [(sample, self._try_adding(sample)) for sample in probes.NEW_MESSAGES]
        self._samples = [(sample, ids) for sample, ids in added if ids is not None]
        """Sample messages, each with what the template writes for them behind an answer."""

    def tail(self, prompt: bytes) -> bytes:
        """Return the part of a prompt that `suffix` reads."""
        return self._template.from_last_stop(prompt) if self.from_tail else prompt

    def suffix(
        self, prompt: bytes, completion: bytes, new_messages: Messages, tools: Tools | None
    ) -> bytes | None:
        """Return the ids to append to `prompt + completion`. Raises `RendererError`."""
        suffix = self._template.bridge(self.tail(prompt), completion, new_messages, tools)
        foreign = any(message.get("role") == "assistant" for message in new_messages)
        if suffix is None and (foreign or not new_messages):
            return self._by_difference(prompt, completion, new_messages, tools)
        return suffix

    def _by_difference(
        self, prompt: bytes, completion: bytes, new_messages: Messages, tools: Tools | None
    ) -> bytes | None:
        """Return the ids that end the turn, and the ids behind it; None if either is unknown."""
        with suppress(RendererError):  # such as two answers in a row: the whole prompt decides
            for sample, ending in self._samples:
                ended = self._template.bridge(self.tail(prompt), completion, sample, tools)
                if ended is not None and ended.endswith(ending):
                    added = self._added(new_messages, tools)
                    return None if added is None else ended[: len(ended) - len(ending)] + added
        return None

    def _try_adding(self, new_messages: Messages) -> bytes | None:
        with suppress(RendererError):
            return self._added(new_messages, None)
        return None

    def _added(self, new_messages: Messages, tools: Tools | None) -> bytes | None:
        """Return the ids that the template writes behind an answer's end, or None."""
        first = new_messages[0].get("role") if new_messages else None
        histories = self._called if first == "tool" else self._answered
        if len(histories) < 2:  # nothing to compare with
            return None
        ids = behind_answer(
            lambda messages, ask: self._template.render(messages, tools, ask=ask),
            self._template.ends,
            histories,
            new_messages,
            thinking_stays=self._template.thinking_stays,
        )
        return None if ids is None else pack(ids)

    def _renderable(self, histories: tuple[Messages, ...]) -> list[Messages]:
        """Return the first two histories that the template does not refuse."""
        return [history for history in histories if self._prompt(history, None) is not None][:2]

    def _prompt(self, messages: Messages, tools: Tools | None) -> bytes | None:
        """Return a prompt, or None if the template refuses it."""
        with suppress(RendererError):
            return pack(self._template.render(messages, tools, ask=True))
        return None

    def _try(self, prompt: bytes, completion: bytes, new_messages: Messages) -> bytes | str | None:
        try:
            return self._template.bridge(prompt, completion, new_messages, probes.TOOLS)
        except RendererError as error:
            return error.reason
