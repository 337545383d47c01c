"""Conversations from elsewhere as rows of tokens, rendered as a model's template writes them.

The messages stay as the file has them, in the row's member `conversation`. The row's tokens are
what the template makes from them, not what was sampled.
"""

from collections.abc import Iterator
from pathlib import Path

import orjson

from seamlessflow.infra.device_model.model_shape import context_limit, vocabulary_of
from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.rendering.model_template.discovery import named_for
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.rendering.settings import FROM_MODEL, RendererError, RendererSettings
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.recorded.importing.conversations.conversation import ForeignConversation
from seamlessflow.recorded.importing.conversations.reading import Read, read
from seamlessflow.recorded.importing.foreign_row import ForeignRowRejected, RowRead
from seamlessflow.recorded.importing.importing import ReadRows
from seamlessflow.runs.conversations import conversation_chains

_LONGEST = 2**31 - 1
"""No real limit: a file's conversation may be as long as the model's positions let it."""


class ConversationReader:
    """A reader for conversation files, with the model that renders them, if one was named."""

    def __init__(self, model: Path | None, skip: bool = False) -> None:
        """Make a reader; with `skip` it leaves out conversations that cannot be rendered."""
        self._model = model
        self._renderer: Renderer | None = None
        self._skip = skip
        self.skipped: dict[tuple[Path, int], str] = {}
        """Reasons why conversations were left out, by file and number."""

    def rows(self, reader: Read) -> ReadRows:
        """Return a row reader for a file in this form."""

        def read_rows(path: Path) -> Iterator[RowRead]:
            for number, item in enumerate(read(path, reader), 1):
                if not isinstance(item, ForeignConversation):
                    yield item
                    continue
                try:
                    row = self._rendered(path, item)
                except (ApiError, ValueError, RecursionError, RendererError) as error:
                    reason = error.message if isinstance(error, ApiError) else str(error)
                    if not self._skip:
                        raise ForeignRowRejected(str(path), number, reason) from error
                    self.skipped[path, number] = reason
                    continue
                yield row

        return read_rows

    def _rendered(self, path: Path, item: ForeignConversation) -> RowRead:
        renderer = self._loaded(path)
        assert self._model is not None  # nosec B101 # for the type checker
        longest = context_limit(self._model, _LONGEST)
        row = {"messages": list(item.messages), "tools": list(item.tools) or None}
        chains = conversation_chains(path.name, row, renderer, longest, vocabulary_of(self._model))
        lengths = [len(chain) for chain in chains]
        return {
            "token_ids": [int(token) for chain in chains for token in chain.tokens.ids_T],
            "mask": [bool(flag) for chain in chains for flag in chain.tokens.turns_T >= 0],
            "begins": [sum(lengths[:number]) for number in range(len(lengths))],
            "tokenizer_hash": renderer.hash,
            "session_id": item.session_id or None,
            "conversation": {
                "source": item.source,
                "model": item.model,
                "messages": orjson.dumps(list(item.messages)).decode(),
                "tools": orjson.dumps(list(item.tools)).decode(),
            },
        }

    def _loaded(self, path: Path) -> Renderer:
        if self._model is None:
            reason = f"{path} has conversations: name the directory of the model that renders them"
            raise SettingsRejected("--model", reason)
        if self._renderer is None:
            settings = named_for(self._model, RendererSettings(FROM_MODEL))
            self._renderer = Renderer.load(self._model, settings)
        return self._renderer
