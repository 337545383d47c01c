"""The frame of every page: the moment, the slider over `control`, how far the reading is. Pure."""

from dataclasses import dataclass

import numpy as np

from seamlessflow.console.log.follower import ReadingProgress
from seamlessflow.console.log.history import RunPicture
from seamlessflow.console.log.index import KIND_NUMBERS, LogIndex
from seamlessflow.console.log.moment import Moment
from seamlessflow.console.models.surroundings import AuditState
from seamlessflow.schemas.topics import CONTROL

MOST_MARKS = 100
_CONTROL = (CONTROL.name, 0)
_MARKED = KIND_NUMBERS["StepCompleted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slider:
    """Offsets of `control` that the slider goes over."""

    first: int
    last: int
    value: int
    marks: tuple[int, ...]
    """Offsets at which steps were completed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Facts about a page that stand above and below it."""

    run: str
    moment: str
    """Place on the log; empty for now."""
    permanent: str
    """Moment that shows the same for ever: for now, that of the newest record of `control`."""
    at_ms: int
    records: int
    """Records of the log up to the moment."""
    slider: Slider | None
    """None as long as `control` has no record."""
    read: int
    left: int
    away: str
    away_since_ms: int
    audit: AuditState | None
    """None for an earlier moment, and without an audit."""


def frame_of(
    run: str,
    index: LogIndex,
    picture: RunPicture,
    following: ReadingProgress,
    audit: AuditState | None,
) -> Frame:
    """Return the frame of a page about a moment."""
    slider = slider_of(index, picture)
    permanent = "" if slider is None else str(Moment(*_CONTROL, slider.value))
    return Frame(
        run=run,
        moment=str(picture.moment or ""),
        permanent=str(picture.moment or permanent),
        at_ms=picture.at_ms,
        records=sum(picture.cut.values()),
        slider=slider,
        read=following.read,
        left=following.left,
        away=following.away,
        away_since_ms=following.away_since_ms,
        audit=audit,
    )


def slider_of(index: LogIndex, picture: RunPicture) -> Slider | None:
    """Return the slider, set to the last record of `control` that belongs to the picture."""
    partition = index.partitions.get(_CONTROL)
    if partition is None or not partition.rows:
        return None
    offsets = partition.column("offset")
    completed = offsets[np.flatnonzero(partition.column("kind")[: len(offsets)] == _MARKED)]
    thin = len(completed) // MOST_MARKS + 1
    first = int(offsets[0])
    return Slider(
        first=first,
        last=int(offsets[-1]),
        value=max(first, partition.end(picture.cut.get(_CONTROL, 0)) - 1),
        marks=tuple(int(offset) for offset in completed[::-1][::thin][::-1]),
    )
