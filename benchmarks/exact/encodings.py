"""Text that is encoded again, and the ids that then differ from the sampled ones. Pure.

Two encodings of the same bytes are cut where both have a token's border. A part with other ids on
both sides is a change.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

Spelling = Callable[[int], bytes]
"""Returns a token's bytes, as `Tokenizer.token_bytes` does."""

LOST = "lost"
"""Bytes that the text does not have: a special token, or white space at an end."""
BROKEN = "broken characters"
"""Bytes that are no UTF-8, so that the text has U+FFFD instead."""


@dataclass(frozen=True, slots=True)
class Part:
    """Tokens with the same bytes: from and behind these places, in both encodings."""

    sampled: tuple[int, int]
    again: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Change:
    """A part with other ids, its kind, and its tokens' spelling."""

    kind: str
    sampled: tuple[str, ...]
    again: tuple[str, ...]

    def __str__(self) -> str:
        return f"{'|'.join(self.sampled)} → {'|'.join(self.again)}"


def parts(sampled: Sequence[bytes], again: Sequence[bytes]) -> list[Part]:
    """Return the parts between two common borders, or a single one for other bytes.

    `sampled` and `again` have each token's bytes.
    """
    if b"".join(sampled) != b"".join(again):
        return [Part((0, len(sampled)), (0, len(again)))]
    places = [_borders(tokens) for tokens in (sampled, again)]
    common = sorted(places[0].keys() & places[1].keys())
    borders = [(places[0][byte], places[1][byte]) for byte in common]
    return [
        Part((first[0], behind[0]), (first[1], behind[1]))
        for first, behind in zip([(0, 0), *borders], borders, strict=False)
    ]


def _borders(tokens: Sequence[bytes]) -> dict[int, int]:
    """Return the place behind each token, by the byte count up to there."""
    # Of several places at one byte (a token without bytes) the last one counts.
    return {byte: place for place, byte in enumerate(accumulate(map(len, tokens)), start=1)}


def changes(sampled: Sequence[int], again: Sequence[int], spelling: Spelling) -> list[Change]:
    """Return what differs between the sampled ids and their text's ids."""
    return list(_changes(list(sampled), list(again), spelling))


def _changes(sampled: list[int], again: list[int], spelling: Spelling) -> Iterator[Change]:
    if sampled == again:
        return
    before, after = [[spelling(token) for token in ids] for ids in (sampled, again)]
    whole = parts(before, after)
    same_bytes = b"".join(before) == b"".join(after)
    for part in whole:
        ours, theirs = slice(*part.sampled), slice(*part.again)
        if sampled[ours] != again[theirs]:
            pieces: Sequence[bytes] = before[ours]
            others: Sequence[bytes] = after[theirs]
            kind = kind_of(b"".join(pieces)) if same_bytes else _lossy(b"".join(pieces))
            if not same_bytes:
                pieces, others = _differing(pieces, others)
            yield Change(kind, _shown(pieces), _shown(others))


def kind_of(spelt: bytes) -> str:
    """Return what kind of text a changed part spells."""
    text = spelt.decode(errors="replace")
    bare = text.strip()
    if not bare:
        return "white space"
    if bare.isdigit():
        return "digits"
    if bare.isalpha():
        return "words" if bare.isascii() else "letters beyond ASCII"
    if not any(character.isalnum() for character in bare):
        return "punctuation" if bare.isascii() else "signs beyond ASCII"
    return "mixed"


def _lossy(spelt: bytes) -> str:
    try:
        spelt.decode()
    except UnicodeDecodeError:
        return BROKEN
    return LOST


def _differing(
    pieces: Sequence[bytes], others: Sequence[bytes]
) -> tuple[Sequence[bytes], Sequence[bytes]]:
    """Return both without the tokens that they have in common at their ends."""
    shorter = min(len(pieces), len(others))
    first = next((n for n in range(shorter) if pieces[n] != others[n]), shorter)
    left = shorter - first
    last = next((n for n in range(left) if pieces[-1 - n] != others[-1 - n]), left)
    return pieces[first : len(pieces) - last], others[first : len(others) - last]


def _shown(pieces: Sequence[bytes]) -> tuple[str, ...]:
    texts = [piece.decode(errors="backslashreplace") for piece in pieces]
    return tuple("".join(map(_printable, text)) for text in texts)


def _printable(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()
