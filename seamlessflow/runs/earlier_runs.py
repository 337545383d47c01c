"""Keeps what an earlier run left, under a numbered name."""

from itertools import count
from pathlib import Path


def set_aside(out: Path) -> Path | None:
    """Renames `out` to `out-1`, `out-2`, ...; returns the new name, None if there was nothing."""
    if not out.exists() or not any(out.iterdir()):
        return None
    kept = next(
        name for number in count(1) if not (name := out.with_name(f"{out.name}-{number}")).exists()
    )
    out.rename(kept)
    return kept
