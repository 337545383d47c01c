"""Long prompts: their texts are tokenised by threads of their own, so that no other session waits.

What needed the tokens is done again on the main thread once they are there.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from seamlessflow.infra.rendering.long_texts import TokensWanted

_THREADS = 2


class LongPrompts:
    """Texts that are being tokenised, each with what waits for it."""

    def __init__(self, post: Callable[[Callable[[], None]], None]) -> None:
        """`post` runs a function on the main thread; it is called by other threads."""
        self._post = post
        self._threads = ThreadPoolExecutor(_THREADS, "tokenising")
        self._waiting: dict[str, list[Callable[[], None]]] = {}

    def tokenise(self, wanted: TokensWanted, then: Callable[[], None]) -> None:
        """Call `then` on the main thread once the text is tokenised, or could not be."""
        waiting = self._waiting.setdefault(wanted.text, [])
        waiting.append(then)
        if len(waiting) == 1:
            self._threads.submit(self._run, wanted)

    def close(self) -> None:
        """Begin no more; what is under way ends by itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _run(self, wanted: TokensWanted) -> None:
        try:
            wanted.tokenise()
        finally:
            self._post(partial(self._done, wanted.text))

    def _done(self, text: str) -> None:
        for then in self._waiting.pop(text):
            then()
