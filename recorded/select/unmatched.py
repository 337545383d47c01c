"""Sentences about criteria of a selection that no session met. Pure."""

from collections.abc import Iterator, Sequence

from seamlessflow.recorded.select.selection import SessionSelection

MOST_NAMED = 20
"""Most names that a sentence has."""
MOST_SHOWN = 300
"""Most characters of a selection that it has."""


def unmatched_lines(
    selection: SessionSelection, missing: Sequence[str], sessions: int
) -> Iterator[str]:
    """Yield the sentences about `missing` names, and about a selection that chose no session."""
    if missing:
        more = f" and {len(missing) - MOST_NAMED:,} more" if len(missing) > MOST_NAMED else ""
        named = ", ".join(missing[:MOST_NAMED])
        yield f"! not found among the sessions that were read: {named}{more}"
    elif not sessions and selection != SessionSelection():
        chosen = selection.encode()
        shown = chosen if len(chosen) <= MOST_SHOWN else f"{chosen[:MOST_SHOWN]}..."
        yield f"! no session that ended matches the selection {shown}"
