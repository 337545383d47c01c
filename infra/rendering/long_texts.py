"""Long texts, which a process may tokenise in another thread than the one that renders.

Three megabytes take seconds. A renderer that puts long texts off does not tokenise them, but raises
`TokensWanted` with the text. Its caller lets another thread tokenise it, and renders again.
"""

from array import array
from collections import OrderedDict
from collections.abc import Callable

LONG_TEXT = 256_000
"""Letters of the longest text that is tokenised where it is rendered: about a tenth of a second."""

TEXTS_KEPT = 16
"""Long texts whose ids are kept until they are rendered again."""


class TokensWanted(Exception):
    """A long text that is to be tokenised before the messages can be rendered."""

    def __init__(self, text: str, tokenise: Callable[[], None]) -> None:
        self.text = text
        self.tokenise = tokenise
        """Makes the ids known to the renderer; for any thread."""
        super().__init__(f"a text of {len(text)} letters is not tokenised yet")


class LongTexts:
    """Ids of long texts, or the errors of their tokenising, by text."""

    def __init__(self, tokenise: Callable[[str], list[int]]) -> None:
        """`tokenise` lets other threads of Python go on while it computes."""
        self._tokenise = tokenise
        self._known: OrderedDict[str, array[int] | Exception] = OrderedDict()

    def ids(self, text: str) -> list[int]:
        """Return the ids of a text. Raises `TokensWanted`, and the error of its tokenising."""
        remembered = self._known.get(text)
        if remembered is None:
            raise TokensWanted(text, lambda: self._learn(text))
        if isinstance(remembered, Exception):
            raise remembered
        return remembered.tolist()

    def _learn(self, text: str) -> None:
        try:
            self._known[text] = array("i", self._tokenise(text))
        except Exception as error:  # raised again where the text is rendered, which has a plan
            self._known[text] = error
        while len(self._known) > TEXTS_KEPT:
            self._known.popitem(last=False)
