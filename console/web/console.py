"""The pages that show one log: each from its view, as a dataclass, as HTML and as JSON."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson

from seamlessflow.console.log.follower import ReadingProgress
from seamlessflow.console.log.index import KINDS
from seamlessflow.console.log.moment import Moment, MomentNotOnLog, parse_moment
from seamlessflow.console.log.run_log import RunLog, RunPicture
from seamlessflow.console.models.course import Course, starts_of
from seamlessflow.console.models.surroundings import NOTHING_KNOWN, Surroundings
from seamlessflow.console.views.compare.rules import RULE_PARTS
from seamlessflow.console.views.curves import CurvesPage, curves_page, curves_query
from seamlessflow.console.views.fields import WHOLE
from seamlessflow.console.views.frame import Frame, frame_of
from seamlessflow.console.views.now import now_page
from seamlessflow.console.views.query import Query, QueryRejected
from seamlessflow.console.views.records import (
    RecordLine,
    RecordsPage,
    record_line,
    records_page,
    setting_changes,
)
from seamlessflow.console.views.search import found_records, record_query
from seamlessflow.console.views.session.page import SessionPage
from seamlessflow.console.views.session.token_range import TokenRange
from seamlessflow.console.views.sessions import (
    SessionsPage,
    session_query,
    session_training,
    sessions_page,
)
from seamlessflow.console.views.step import StepPage, step_query
from seamlessflow.console.web.compare_pages import ComparePage, ComparePages
from seamlessflow.console.web.session_pages import SessionPages
from seamlessflow.console.web.step_pages import StepPages
from seamlessflow.console.web.templates import day, environment, url
from seamlessflow.console.web.text_search import records_with_text
from seamlessflow.console.web.timeline_pages import TimelinePage, TimelinePages
from seamlessflow.infra.kafka.client import Received
from seamlessflow.schemas.records import LineageStarted
from seamlessflow.schemas.topics import CONTROL, SESSIONS

RECORD, SESSION, TOKENS, STEP, TIMELINE = "record", "session", "tokens", "step", "timeline"
"""Pages for one record, one session, a token range and one step, and the timeline."""
COMPARE = "compare"
NAV = (
    *(("now", "Now"), ("curves", "Curves"), (TIMELINE, "Timeline"), (COMPARE, "Compare")),
    *(("sessions", "Sessions"), ("records", "Records")),
)
"""Pages in the menu: names and titles."""
_TITLES = {**dict(NAV), RECORD: "Record", SESSION: "Session", STEP: "Step"}
_ALWAYS_LIVE = ("now", "curves", "sessions")
_OF_FOLDS = ("now", "sessions", COMPARE)
_FOLLOW = "follow"
_PARTS = (
    *("topic", "partition", "type", "key", "since", "until", "letters", "before", "count"),
    *("session", "group", "task", "policy", "purpose", "status", "least", "most", "skip"),
    *("agent", "version", "reason", "trained", "text"),
    *("beside", "colour", "at", _FOLLOW, "metrics", "smooth", "first", "last"),
    *("with", "step", "window", *(part for part in RULE_PARTS if part != "purpose")),
)
"""Query parts that pages know; links leave out all others."""

_View = Callable[[RunPicture, Query, str], Any]
"""Function that returns a page, from a picture, a query, and the place that an address names."""


@dataclass(frozen=True, slots=True)
class AskedPage:
    """A page that is asked for: its name, its query, and a single record's place."""

    name: str
    query: Mapping[str, str]
    place: str = ""

    @property
    def path(self) -> str:
        """Path in the page's address."""
        return f"/{self.name}/{quote(self.place, '')}" if self.place else f"/{self.name}"


@dataclass(frozen=True, slots=True)
class RunBeside:
    """Another run, as its log was when the console started."""

    course: Course
    timeline: Mapping[str, Any]
    """Its timeline's data, as `seamlessflow.lab.timeline.page` has them."""


@dataclass(frozen=True, slots=True)
class ShownRun:
    """The run that a console shows."""

    name: str
    option: str = ""
    """Option with which a command finds it, such as ` --out runs/mine`."""
    trained: Path | None = None
    """Directory with its trained tokens, if it is known."""
    beside: Mapping[str, RunBeside] = field(default_factory=dict)
    """Other runs by name, whose curves and timelines stand beside its own."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """By topic, the Kafka consumer group that commits offsets for it."""


class Console:
    """The pages that show one log. Any thread."""

    def __init__(
        self,
        run_log: RunLog,
        following: Callable[[], ReadingProgress],
        run: ShownRun,
        around: Callable[[], Surroundings] = Surroundings,
    ) -> None:
        self._around = around
        self._run_log = run_log
        self._following = following
        self._run = run
        self._sessions = SessionPages(run_log, run.trained)
        self._steps = StepPages(run_log, run.trained)
        self._courses = {name: other.course for name, other in run.beside.items()}
        timelines = {name: other.timeline for name, other in run.beside.items()}
        self._timelines = TimelinePages(run_log, run.name, timelines)
        self._compared = ComparePages(run_log, self._courses, run.option)
        self._views: Mapping[str, _View] = {
            "now": lambda picture, query, place: now_page(picture, self._beside(picture)),
            "curves": self._curves,
            TIMELINE: self._timeline,
            COMPARE: self._compare,
            "sessions": self._sessions_page,
            "records": self._records,
            RECORD: self._record,
            SESSION: self._session,
            TOKENS: self._tokens,
            STEP: self._step,
        }
        self._templates = environment()

    def page(self, asked: AskedPage) -> tuple[Frame, Any]:
        """Return the frame and the page. Raises what its view and the log raise."""
        query = Query(asked.query)
        moment = self._moment(query)
        whole = asked.name in _OF_FOLDS
        picture = self._run_log.picture(moment) if whole else self._run_log.outline(moment)
        page = self._views[asked.name](picture, query, asked.place)
        audit = self._beside(picture).audit
        run_log = self._run_log
        shown = frame_of(
            self._run.name, run_log.index, run_log.course, picture, self._following(), audit
        )
        return shown, page

    def html(self, asked: AskedPage) -> str:
        """Return the page as HTML."""
        return self._rendered("layout.html", asked)

    def fragment(self, asked: AskedPage) -> str:
        """Return the changing part of a live page, as HTML."""
        return self._rendered("live.html", asked)

    def json(self, asked: AskedPage) -> bytes:
        """Return the page as JSON."""
        frame, page = self.page(asked)
        if isinstance(page, TimelinePage):
            return orjson.dumps({"frame": frame, "page": self._timelines.data(page)})
        if isinstance(page, SessionPage | TokenRange):
            value = {"frame": frame, "page": page}
            return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
        return twin(frame, page)

    def error(self, status: int, reason: str) -> str:
        """Return an error as a page."""
        return self._templates.get_template("error.html").render(status=status, reason=reason)

    def _rendered(self, template: str, asked: AskedPage) -> str:
        frame, page = self.page(asked)
        query = {name: asked.query.get(name, "") for name in _PARTS}
        query["at"] = frame.moment
        values = {
            "nav": NAV,
            "name": asked.name,
            "title": _TITLES[asked.name],
            "path": asked.path,
            "query": query,
            "kinds": KINDS,
            "frame": frame,
            "page": page,
            "live": self._live(asked, frame),
            "twin": url(f"{asked.path}.json", **query),
            "here": lambda **changes: url(asked.path, **{**query, **changes}),
            "session_link": lambda row: session_link(frame.moment, row.session_id),
            "step_link": lambda step, policy: url(
                f"/{STEP}/{step}", policy=policy, at=frame.moment
            ),
        }
        if asked.name == TIMELINE:
            values["timelines"] = [
                url(f"/{TIMELINE}.json", at=frame.moment),
                *(url(f"/{TIMELINE}.json", beside=name) for name in self._timelines.beside),
            ]
        if asked.name == SESSION:
            values |= self._values_of_session(asked, frame)
        return self._templates.get_template(template).render(values)

    def _live(self, asked: AskedPage, frame: Frame) -> str:
        """Return the address that sends a page's events; empty if the page does not change."""
        follows = asked.name in _ALWAYS_LIVE or bool(asked.query.get(_FOLLOW))
        return "" if frame.moment or not follows else url(f"/live{asked.path}", **asked.query)

    def _moment(self, query: Query) -> Moment | None:
        offset = query.number("control")
        if offset is not None:  # the slider of a browser without scripts
            return Moment(CONTROL.name, 0, offset)
        if query.text("time"):
            return self._last_until(query)
        return parse_moment(query.text("at"))

    def _last_until(self, query: Query) -> Moment:
        """Return the last record on `control` up to a query's time. Raises `QueryRejected`."""
        partition = self._run_log.index.partitions.get((CONTROL.name, 0))
        rows = 0 if partition is None else partition.rows_until(query.time("time") or 0)
        if partition is None or not rows:
            began_ms = partition.column("reached_ms")[0] if partition is not None else None
            reason = f"the log begins at {day(began_ms)} UTC" if began_ms else "no record is read"
            raise QueryRejected("time", query.text("time"), reason)
        return Moment(CONTROL.name, 0, partition.end(rows) - 1)

    def _beside(self, picture: RunPicture) -> Surroundings:
        """Return facts that stand on no log; there are none for an earlier moment."""
        return self._around() if picture.moment is None else NOTHING_KNOWN

    def _curves(self, picture: RunPicture, query: Query, place: str) -> CurvesPage:
        end = self._run_log.control_end(picture.cut)
        asked = curves_query(query)
        return curves_page(self._run_log.course, end, asked, self._courses)

    def _timeline(self, picture: RunPicture, query: Query, place: str) -> TimelinePage:
        end = self._run_log.control_end(picture.cut)
        return TimelinePage(end, query.text("beside"), live=picture.moment is None)

    def _compare(self, picture: RunPicture, query: Query, place: str) -> ComparePage:
        return self._compared.page(picture, query)

    def _step(self, picture: RunPicture, query: Query, place: str) -> StepPage:
        policy = query.text("policy")
        return self._steps.page(picture.cut, place, policy, step_query(query))

    def _sessions_page(self, picture: RunPicture, query: Query, place: str) -> SessionsPage:
        end = self._run_log.control_end(picture.cut)
        course = self._run_log.course
        return sessions_page(
            picture,
            session_query(query),
            lambda group: course.drop_reason(group, end),
            lambda row: session_training(row, course, end),
        )

    def _records(self, picture: RunPicture, query: Query, place: str) -> RecordsPage:
        asked = record_query(query)
        reading = None
        if asked.text:
            search, raw, reading = records_with_text(self._run_log, picture.cut, asked)
        else:
            search = found_records(self._run_log.index, picture.cut, asked)
            raw = self._run_log.records(search.places)
        items = ((item, self._decoded(item)) for item in raw)
        index = self._run_log.index
        return records_page(index, picture.cut, search, items, self._run.option, reading)

    def _session(self, picture: RunPicture, query: Query, place: str) -> SessionPage:
        return self._sessions.page(picture.cut, place)

    def _tokens(self, picture: RunPicture, query: Query, place: str) -> TokenRange:
        begin = query.number("from") or 0
        end = query.number("to") or 0
        return self._sessions.tokens(picture.cut, place, begin, end)

    def _values_of_session(self, asked: AskedPage, frame: Frame) -> Mapping[str, Any]:
        """Return the further values that the template for a session's page needs.

        Token codes are row numbers on the page, so a browser asks for both at one moment.
        """
        at = frame.moment or str(self._run_log.index.newest() or "")
        beside = asked.query.get("beside", "").strip()
        cut = self._run_log.outline(parse_moment(at)).cut
        return {
            "beside": self._sessions.page(cut, beside) if beside else None,
            "twin_url": lambda session: url(f"/{SESSION}/{quote(session, '')}.json", at=at),
            "range_url": lambda session: url(f"/{TOKENS}/{quote(session, '')}.json", at=at),
            "record_url": lambda place: f"/{RECORD}/{quote(place)}",
            "rules_url": lambda session: url(f"/{COMPARE}", session=session, at=frame.moment),
            "records_url": lambda session: url("/records", topic=SESSIONS.name, key=session, at=at),
        }

    def _record(self, picture: RunPicture, query: Query, place: str) -> RecordLine:
        moment = parse_moment(place)
        if moment is None:
            raise MomentNotOnLog(Moment("", 0, 0), "no place is named")
        self._run_log.index.row(moment)
        items = self._run_log.records([(moment.place, moment.offset)])
        if not items:
            raise MomentNotOnLog(moment, "Kafka has no record there, or not any more")
        decoded = self._decoded(items[0])
        line = record_line(items[0], decoded, self._run.option, WHOLE)
        if not isinstance(decoded.record, LineageStarted):
            return line
        starts = starts_of(self._run_log.course.events(moment.offset), decoded.record.policy)
        before = starts[-1][0] if starts else None
        return replace(line, changes=setting_changes(before, decoded.record))

    def _decoded(self, item: Received) -> Received:
        return self._run_log.decoder.decoded(item)


def session_link(moment: str, session_id: str) -> str:
    """Return the address of a session's page."""
    return url(f"/{SESSION}/{quote(session_id, '')}", at=moment)


def twin(frame: Any, page: Any) -> bytes:
    """Return a page and its frame as a JSON object.

    Members have the names of the fields. A number that is not finite is null.
    """
    value = {"frame": plain(frame), "page": plain(page)}
    # As ASCII: a text may have lone surrogates, which have no other encoding.
    return json.dumps(value, ensure_ascii=True, allow_nan=False).encode()


def plain(value: Any) -> Any:
    """Return a value in JSON's types."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(element) for name, element in value.items()}
    if isinstance(value, tuple | list):
        return [plain(element) for element in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
