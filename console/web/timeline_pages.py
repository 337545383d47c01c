"""A run's timeline at a moment, as the data for its script. Any thread.

It folds all of `control` up to the moment, so it is made when the script asks, not with the page.
Other runs' timelines are made once, from all that their logs have then.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seamlessflow.console.log.run_log import RunLog
from seamlessflow.console.views.query import RunNotBeside
from seamlessflow.lab.timeline.facts import facts
from seamlessflow.lab.timeline.page import page_data
from seamlessflow.scheduler.state.timeline import timeline
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import CONTROL

_CHUNK = 20_000
"""Records that are read at once."""
_PLACE = (CONTROL.name, 0)
_REFRESH_S = 3.0
"""Least seconds between two foldings while a run goes on."""
_SHARE = 60
"""Time between two foldings, as a multiple of the time that a folding takes."""


@dataclass(frozen=True, slots=True)
class TimelinePage:
    """The timeline up to an offset on `control`; `TimelinePages.data` makes its data."""

    end: int
    beside: str = ""
    """Name of another run, whose timeline stands here instead of the run's own."""
    live: bool = False
    """True if the script asks again while the run goes on."""


@dataclass(frozen=True, slots=True)
class MadeTimeline:
    """A timeline's data up to an offset on `control`."""

    end: int = -1
    data: Mapping[str, Any] = field(default_factory=dict)
    refresh_s: float = 0
    """Seconds until a new request is worth it; 0 for a run that has ended."""


class TimelinePages:
    """Timelines of a log; the last moment's data are kept."""

    def __init__(
        self, run_log: RunLog, run: str, beside: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        """Show a run under its name; `beside`: other runs' timeline data by name."""
        self._run_log = run_log
        self._run = run
        self._beside = beside or {}
        self._kept = MadeTimeline()
        self._making = threading.Lock()

    @property
    def beside(self) -> Sequence[str]:
        """Names of the other runs."""
        return list(self._beside)

    def data(self, page: TimelinePage) -> Mapping[str, Any]:
        """Return the data, as `seamlessflow.lab.timeline.page` has them.

        Raises `RunNotBeside` and what the log's lookup raises.
        """
        if page.beside:
            if page.beside not in self._beside:
                raise RunNotBeside(page.beside, self.beside)
            return self._beside[page.beside]
        with self._making:  # two browsers that ask for the same wait for one fold
            if self._kept.end != page.end:
                self._kept = self._made(page.end)
            return {**self._kept.data, "refresh_s": self._kept.refresh_s if page.live else 0}

    def _made(self, end: int) -> MadeTimeline:
        began_s = time.monotonic()
        records = list(self._records(end))
        data = timeline_data(records, self._run)
        took_s = time.monotonic() - began_s
        refresh_s = 0 if data["finished"] else max(_REFRESH_S, _SHARE * took_s)
        return MadeTimeline(end, data, refresh_s)

    def _records(self, end: int) -> Iterator[Record]:
        for first in range(0, end, _CHUNK):
            for item in self._run_log.range(_PLACE, first, min(end, first + _CHUNK)):
                yield self._run_log.decoder.decoded(item).record


def timeline_data(records: Sequence[Record], run: str) -> dict[str, Any]:
    """Return a run's timeline data, from its `control`, for a page that does not change."""
    data = page_data(timeline(records), facts(records), f"Timeline of {run}")
    return {**data, "refresh_s": 0}
