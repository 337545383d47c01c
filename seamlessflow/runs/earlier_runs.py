"""Directories of earlier runs, kept under numbered names."""

from itertools import count
from pathlib import Path

from seamlessflow.processes.run_lock import refuse_running


def set_aside(out: Path) -> Path | None:
    """Rename `out` to `out-1`, `out-2`, ...; return the new name, or None if `out` was empty.

    Raises `RunUnderWay`.
    """
    if not out.exists() or not any(out.iterdir()):
        return None
    refuse_running(out)
    kept = next(
        name for number in count(1) if not (name := out.with_name(f"{out.name}-{number}")).exists()
    )
    out.rename(kept)
    return kept
