"""Cache of the renderers of all policies and of the template arguments that requests ask for."""

import logging
from collections import OrderedDict
from pathlib import Path

from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.rendering.settings import RendererError, RendererSettings
from seamlessflow.schemas.records import PolicyWeights

_log = logging.getLogger(__name__)
KEPT = 64
"""Number of renderers kept; a dropped one is made again when it is asked for."""


class Renderers:
    """Renderers by tokenizer and settings; errors too, until the policy's next weights."""

    def __init__(self, put_off: int | None = None) -> None:
        """`put_off`: letters of the longest text that is tokenised here; None: any."""
        self._put_off = put_off
        self._made: OrderedDict[tuple[str, bytes], Renderer | RendererError] = OrderedDict()
        self._tokenizers: dict[str, Renderer | RendererError] = {}

    def prepare(self, policy: PolicyWeights) -> None:
        """Make a policy's renderer before the first request needs it; takes seconds at most.

        An error is logged; each request for the policy is then refused with it. It is one too if
        the directory has another tokenizer here than the trainer published.
        """
        self._forget_errors(policy.tokenizer_hash)
        try:
            self.of(policy).check(policy.tokenizer_hash, policy.tokenizer_directory)
        except RendererError as error:
            _log.error("policy %s cannot be rendered: %s", policy.policy, error)
            self._made.pop((policy.tokenizer_hash, policy.renderer))
            self._tokenizers[policy.tokenizer_hash] = error

    def of(self, policy: PolicyWeights) -> Renderer:
        """Return the renderer of a policy. Raises `RendererError`."""
        key = policy.tokenizer_hash, policy.renderer
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = self._make(policy)
            if len(self._made) > KEPT:
                self._made.popitem(last=False)
        else:
            self._made.move_to_end(key)
        if isinstance(made, RendererError):
            raise made.with_traceback(None)  # each raise would add its frames
        return made

    def _forget_errors(self, tokenizer_hash: str) -> None:
        for key, made in list(self._made.items()):
            if key[0] == tokenizer_hash and isinstance(made, RendererError):
                del self._made[key]
        if isinstance(self._tokenizers.get(tokenizer_hash), RendererError):
            del self._tokenizers[tokenizer_hash]

    def _make(self, policy: PolicyWeights) -> Renderer | RendererError:
        try:
            settings = RendererSettings.from_json(policy.renderer)
            loaded = self._tokenizers.get(policy.tokenizer_hash)
            if isinstance(loaded, RendererError):
                return loaded
            if loaded is not None:
                return loaded.variant(settings)
            made = Renderer.load(Path(policy.tokenizer_directory), settings)
            if self._put_off is not None:
                made.put_off(self._put_off)
        except RendererError as error:
            return error
        except OSError as error:
            return RendererError(policy.policy, str(error))
        self._tokenizers[policy.tokenizer_hash] = made
        return made
