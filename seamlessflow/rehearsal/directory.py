"""A rehearsal's directory: the mark that it is one, and the scale of its times."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from seamlessflow.infra.errors import SeamlessFlowError

REPORT = "rehearsal.json"
_SCALE = "scale"
"""Name of the scale in the report, which has nothing else until the rehearsal has ended."""


class DirectoryTaken(SeamlessFlowError):
    """A directory for a rehearsal holds something else."""

    lasting = True

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        super().__init__(
            f"{directory} holds no earlier rehearsal, which a new one would replace: name an empty "
            "directory with --out"
        )


class ReportUnreadable(SeamlessFlowError):
    """A rehearsal's report is not as it was written."""

    lasting = True

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(f"{path} is not the report of a rehearsal, and so its scale is unknown")


def begin_in(directory: Path, scale: float) -> None:
    """Empty an earlier rehearsal's directory, or make it. Raises `DirectoryTaken`."""
    if directory.exists() and any(directory.iterdir()) and not (directory / REPORT).exists():
        raise DirectoryTaken(directory)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    # From the beginning, so that the directory is known as a rehearsal's after any end.
    (directory / REPORT).write_text(f"{json.dumps({_SCALE: scale})}\n", encoding="utf-8")


def end_in(directory: Path, report: Mapping[str, object], scale: float) -> None:
    """Write an ended rehearsal's report, with its scale."""
    text = json.dumps({_SCALE: scale, **report}, indent=2)
    (directory / REPORT).write_text(f"{text}\n", encoding="utf-8")


def scale_of(directory: Path | None) -> float:
    """Return a rehearsal's scale, live or ended; 1 for a run, and if no scale is recorded.

    Raises `ReportUnreadable`.
    """
    if directory is None or not (directory / REPORT).is_file():
        return 1.0
    try:
        report = json.loads((directory / REPORT).read_text(encoding="utf-8"))
        return float(report.get(_SCALE, 1.0))
    except (ValueError, TypeError, AttributeError) as error:
        raise ReportUnreadable(directory / REPORT) from error
