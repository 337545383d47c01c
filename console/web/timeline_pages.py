"""The timeline of a run at a moment, as the data of its script. Any thread.

It folds all of `control` up to the moment, so it is made when the script asks, not with the page.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from seamlessflow.console.log.history import History
from seamlessflow.lab.timeline.facts import facts
from seamlessflow.lab.timeline.page import page_data
from seamlessflow.scheduler.state.timeline import timeline
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import CONTROL

_CHUNK = 20_000
"""Records that are read at once."""
_PLACE = (CONTROL.name, 0)


@dataclass(frozen=True, slots=True)
class TimelinePage:
    """The timeline up to an offset of `control`; its data are made by `TimelinePages.data`."""

    end: int


class TimelinePages:
    """Timelines of a history; the data of the last moment are kept."""

    def __init__(self, history: History, run: str) -> None:
        """Show a run by its name."""
        self._history = history
        self._title = f"Timeline of {run}"
        self._kept: tuple[int, Any] = (-1, None)
        self._making = threading.Lock()

    def data(self, page: TimelinePage) -> Any:
        """Return the data, as `seamlessflow.lab.timeline.page` has them.

        Raises what the history's lookup raises.
        """
        with self._making:  # two browsers that ask for the same wait for one fold
            if self._kept[0] != page.end:
                records = list(self._records(page.end))
                made = page_data(timeline(records), facts(records), self._title)
                self._kept = page.end, made | {"refresh_s": 0}
            return self._kept[1]

    def _records(self, end: int) -> Iterator[Record]:
        for first in range(0, end, _CHUNK):
            for item in self._history.range(_PLACE, first, min(end, first + _CHUNK)):
                yield self._history.decoder.decoded(item).record
