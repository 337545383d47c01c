"""Texts as answers: the same text, or a choice's letter. Pure."""

import re
from collections.abc import Sequence

from seamlessflow.producers.scorers.answers import (
    after_reasoning,
    final_answer,
    marked_answer,
    plain,
)

_QUOTES = "\"' \u201c\u201d\u2018\u2019\u00ab\u00bb"
_ALONE = re.compile(r"^\W*(?:option|choice|answer)?\W*([A-Ja-j])(?:\W*$|\s*[).:](?=\s|\*|$))", re.I)
_AMONG = re.compile(r"(?<![\w'])\(?([A-J])\)?(?![\w'])")
_ARTICLE = re.compile(r"\b(?:A|I)\s+(?!or\b|and\b)[a-z]")


def exact(answer: str, reference: object) -> float:
    """Return 1 if the answer is the reference, or one text in a list of references, else 0.

    Spaces, upper case, quotes around it and a full stop do not count; words and signs do.
    """
    several = isinstance(reference, Sequence) and not isinstance(reference, str)
    texts: Sequence[object] = reference if several else [reference]  # type: ignore[assignment]
    wanted = {_folded(str(text)) for text in texts}
    return float(_folded(final_answer(answer)) in wanted)


def choice(answer: str, reference: object) -> float:
    """Return 1 if the answer names only the reference's choice, a letter from A to J, else 0.

    An unmarked answer is the last line. Several letters are no answer. Raises `ValueError` for a
    reference that is no such letter.
    """
    wanted = re.fullmatch(r"\W*([A-Ja-j])\W*", str(reference))
    if wanted is None:
        raise ValueError(f"the reference {str(reference)[:60]!r} is no letter from A to J")
    return float(_letters(answer) == {wanted[1].upper()})


def _letters(answer: str) -> set[str]:
    marked = marked_answer(answer)
    if marked is None:
        lines = [line for line in after_reasoning(answer).splitlines() if line.strip()]
        marked = lines[-1] if lines else ""
    text = plain(marked)
    if alone := _ALONE.match(text):
        others = set(_AMONG.findall(_ARTICLE.sub("", text[alone.end() :])))
        return {alone[1].upper()} | others
    return set(_AMONG.findall(_ARTICLE.sub("", text)))


def _folded(text: str) -> str:
    return plain(text).strip(_QUOTES).rstrip(".").casefold()
