"""The frame around every page: moment, slider over `control`, and reading progress. Pure."""

from dataclasses import dataclass

from seamlessflow.console.log.follower import ReadingProgress
from seamlessflow.console.log.index import LogIndex
from seamlessflow.console.log.moment import Moment
from seamlessflow.console.log.run_log import RunPicture
from seamlessflow.console.models.course import Course, policies_of
from seamlessflow.console.models.surroundings import AuditState
from seamlessflow.schemas.tokens import shown_step
from seamlessflow.schemas.topics import CONTROL

MOST_MARKS = 100
_CONTROL = (CONTROL.name, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slider:
    """Offsets on `control` that the slider covers."""

    first: int
    last: int
    value: int
    marks: tuple[int, ...]
    """Offsets at which steps were completed, at most `MOST_MARKS`."""
    names: tuple[str, ...]
    """Names of these steps, for example `step 12`."""
    step: str
    """Step that the value belongs to; empty before the first."""
    every: bool
    """True if each completed step has a mark."""
    before: int | None
    """Offset of the last step completion before the value; None without one."""
    behind: int | None
    """Offset of the first step completion behind the value; None without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Facts that stand above and below each page."""

    run: str
    moment: str
    """Place on the log; empty for now."""
    permanent: str
    """Moment that shows the same page for ever. For now, it is the newest record on `control`."""
    at_ms: int
    records: int
    """Records on the log up to the moment."""
    ended: bool
    """True if the run had ended by the moment."""
    slider: Slider | None
    """None until `control` has a record."""
    read: int
    left: int
    away: str
    away_since_ms: int
    audit: AuditState | None
    """None for an earlier moment, and without an audit."""


def frame_of(
    run: str,
    index: LogIndex,
    course: Course,
    picture: RunPicture,
    following: ReadingProgress,
    audit: AuditState | None,
) -> Frame:
    """Return the frame for a page about a moment."""
    slider = slider_of(index, course, picture)
    permanent = "" if slider is None else str(Moment(*_CONTROL, slider.value))
    return Frame(
        run=run,
        moment=str(picture.moment or ""),
        permanent=str(picture.moment or permanent),
        at_ms=picture.at_ms,
        records=sum(picture.cut.values()),
        ended=picture.control.ended,
        slider=slider,
        read=following.read,
        left=following.left,
        away=following.away,
        away_since_ms=following.away_since_ms,
        audit=audit,
    )


def slider_of(index: LogIndex, course: Course, picture: RunPicture) -> Slider | None:
    """Return the slider, set to the picture's last record on `control`; None without records."""
    partition = index.partitions.get(_CONTROL)
    if partition is None or not partition.rows:
        return None
    first = int(partition.column("offset")[0])
    end = partition.end(partition.rows)
    value = max(first, partition.end(picture.cut.get(_CONTROL, 0)) - 1)
    completed = course.steps(end)
    thin = len(completed) // MOST_MARKS + 1
    marked = completed[::-1][::thin][::-1]
    earlier = course.steps(value)
    later = completed[len(course.steps(value + 1)) :]
    several = len(policies_of(completed, course.events(end))) > 1
    return Slider(
        first=first,
        last=end - 1,
        value=value,
        marks=tuple(row.offset for row in marked),
        names=tuple(_name(row.step, row.policy if several else "") for row in marked),
        step=_step_at(course, value + 1, several),
        every=thin == 1,
        before=earlier[-1].offset if earlier else None,
        behind=later[0].offset if later else None,
    )


def _step_at(course: Course, end: int, several: bool) -> str:
    place = course.step_at(end)
    if place is None:
        return ""
    policy = place.policy if several else ""
    if place.finished:
        return f"after {_name(place.step - 1, policy)}"
    return _name(place.step, policy)


def _name(step: int, policy: str) -> str:
    return f"step {shown_step(step)} of {policy}" if policy else f"step {shown_step(step)}"
