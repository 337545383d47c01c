"""One model family's chat template on one tokenizer: messages to token ids. Used by
`infra/rendering/renderer.py` and what it is made of.

Ids are lists here; prompts in bytes are cut without reading them whole.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from infra.rendering import probes as probes
from infra.rendering.chat_messages import template_messages
from infra.rendering.library import LibraryRenderer, Offered
from infra.rendering.settings import RendererError
from schemas.tokens import pack, unpack

Messages = Sequence[Mapping[str, object]]
Tools = Sequence[Mapping[str, object]]

REFUSALS = (ValueError, TypeError, KeyError, AttributeError, AssertionError, NotImplementedError)
"""What the library's templates raise for messages they cannot take."""


class ChatTemplate:
    """What it cannot take it refuses by `RendererError`, named `name`."""

    def __init__(self, library: LibraryRenderer, name: str) -> None:
        self._library = library
        self._name = name
        self.stop_token_ids: tuple[int, ...] = tuple(library.get_stop_token_ids())
        self._stops = frozenset(self.stop_token_ids)

    def render(self, messages: Messages, tools: Tools | None, *, ask: bool) -> list[int]:
        """All of them, with a generation prompt (`ask`) or without."""
        with self._refusals():
            return self._library.render_ids(
                template_messages(messages), tools=offered(tools), add_generation_prompt=ask
            )

    def bridge(
        self, prompt: bytes, completion: bytes, new_messages: Messages, tools: Tools | None
    ) -> bytes | None:
        """What comes behind `prompt + completion`; None where these would not stay as they are."""
        turn, sampled = unpack(prompt), unpack(completion)
        with self._refusals():
            rendered = self._library.bridge_to_next_turn(
                turn, sampled, template_messages(new_messages), tools=offered(tools)
            )
        if rendered is None:
            return None
        before = turn + sampled
        ids = rendered.token_ids
        # A bridge may cut off what was sampled behind the end of the turn; sampled ids must stay.
        return pack(ids[len(before) :]) if ids[: len(before)] == before else None

    def from_last_stop(self, prompt: bytes) -> bytes:
        """The prompt's last turn, from the stop token that ended the one before; all of it where
        there is none. Costs as much as that is long."""
        ids = memoryview(prompt).cast("i")
        for place in range(len(ids) - 1, -1, -1):
            if ids[place] in self._stops:
                return prompt[4 * place :]
        return prompt

    def spelt_call(self) -> list[int]:
        """What the model would have sampled for a tool call, without the stop token; empty if it
        knows no tools."""
        with suppress(*REFUSALS):
            rendered = self._library.render(
                template_messages([*probes.SHORT, probes.CALL]), tools=probes.TOOLS
            )
            marked = zip(rendered.token_ids, rendered.sampled_mask, strict=False)
            return [token for token, sampled in marked if sampled and token not in self._stops]
        return []

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except REFUSALS as error:
            raise RendererError(self._name, f"cannot render: {error}") from error


def offered(tools: Tools | None) -> Offered:
    """Tools as the library takes them."""
    return list(tools) if tools else None
