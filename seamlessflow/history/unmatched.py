"""Sentences about criteria of a selection that no session met. Pure."""

from collections.abc import Iterator, Sequence

from consumers.history.selection import SessionSelection


def unmatched_lines(
    selection: SessionSelection, missing: Sequence[str], sessions: int
) -> Iterator[str]:
    """Yield the sentences about `missing` names, and about a selection that chose no session."""
    if missing:
        yield f"! not found among the sessions that were read: {', '.join(missing)}"
    elif not sessions and selection != SessionSelection():
        yield f"! no session that ended matches the selection {selection.encode()}"
