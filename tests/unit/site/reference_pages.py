"""Reading of reference pages, for tests."""

import re
from collections.abc import Iterator


def terms(page: str) -> Iterator[str]:
    """Yield the names of the entries of a page."""
    for match in re.finditer(r"^`([^`]+)`\n:   ", page, re.M):
        yield match[1]
