"""Cache of renderers, for all policies and for the template arguments that requests ask for.

A renderer may put off a long text, so that no other session waits for it. Other threads then
tokenise it (`LongPrompts`). The main thread repeats the work that needed the tokens.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.rendering.settings import RendererError, RendererSettings
from seamlessflow.infra.rendering.tokenizer import TokensWanted
from seamlessflow.schemas.records import PolicyWeights

_log = logging.getLogger(__name__)
KEPT = 64
"""Number of renderers kept; a dropped one is made again when needed."""
_THREADS = 2


class Renderers:
    """Renderers by tokenizer and settings. Errors are kept too, until the policy's next weights."""

    def __init__(self, put_off: int | None = None) -> None:
        """Set `put_off`, the letters in the longest text that is tokenised here; None: no limit."""
        self._put_off = put_off
        self._made: OrderedDict[tuple[str, bytes], Renderer | RendererError] = OrderedDict()
        self._tokenizers: dict[str, Renderer | RendererError] = {}

    def prepare(self, policy: PolicyWeights) -> None:
        """Make a policy's renderer before the first request needs it; takes seconds at most.

        An error is logged, and each request for the policy is then refused with it. It is also an
        error if the directory here holds another tokenizer than the trainer published.
        """
        self._forget_errors(policy.tokenizer_hash)
        try:
            self.for_policy(policy).check(policy.tokenizer_hash, policy.tokenizer_directory)
        except RendererError as error:
            _log.error("policy %s cannot be rendered: %s", policy.policy, error)
            self._made.pop((policy.tokenizer_hash, policy.renderer))
            self._tokenizers[policy.tokenizer_hash] = error

    def for_policy(self, policy: PolicyWeights) -> Renderer:
        """Return a policy's renderer. Raises `RendererError`."""
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


class LongPrompts:
    """Texts that are being tokenised, each with the work that waits for it."""

    def __init__(self, post: Callable[[Callable[[], None]], None]) -> None:
        """`post` runs a function on the main thread; it is called by other threads."""
        self._post = post
        self._threads = ThreadPoolExecutor(_THREADS, "tokenising")
        self._waiting: dict[str, list[Callable[[], None]]] = {}

    def tokenise(self, wanted: TokensWanted, then: Callable[[], None]) -> None:
        """Call `then` on the main thread once the text is tokenised, or tokenising it failed."""
        waiting = self._waiting.setdefault(wanted.text, [])
        waiting.append(then)
        if len(waiting) == 1:
            self._threads.submit(self._run, wanted)

    def close(self) -> None:
        """Begin no more work; work under way ends by itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _run(self, wanted: TokensWanted) -> None:
        try:
            wanted.tokenise()
        finally:
            self._post(partial(self._done, wanted.text))

    def _done(self, text: str) -> None:
        for then in self._waiting.pop(text):
            then()
