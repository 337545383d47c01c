"""A run's report as one HTML file, from the fragments of the console's pages."""

import time
from collections.abc import Callable
from pathlib import Path

from seamlessflow.console.log.follower import Follower
from seamlessflow.console.log.lookup import RawDecoder, RecordLookup
from seamlessflow.console.log.run_log import RunLog, RunPicture
from seamlessflow.console.views.report import (
    ChosenSession,
    ExampleSession,
    chosen_sessions,
    run_report,
)
from seamlessflow.console.web.app import STATIC
from seamlessflow.console.web.session_pages import SessionNotOnLog, SessionPages
from seamlessflow.console.web.templates import environment
from seamlessflow.console.web.timeline_pages import TimelinePage, TimelinePages
from seamlessflow.infra.errors import KafkaUnavailable
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.lab.timeline.page import file_text, packed
from seamlessflow.recorded.audit.auditor import AuditReport

_MOST_TURNS = 12
_LOOK_S = 0.1


class RunReporter:
    """Reader that makes a log's report."""

    def __init__(self, run_log: RunLog, run: str, trained: Path | None) -> None:
        """Prepare; `run`: the run's name; `trained`: directory with its trained tokens."""
        self._run_log = run_log
        self._run = run
        self._sessions = SessionPages(run_log, trained)
        self._timelines = TimelinePages(run_log, run)

    def html(self, audit: AuditReport | None) -> str:
        """Return the report as it is now; without `audit` it says that none was made.

        Raises what the log's lookup raises.
        """
        picture = self._run_log.picture(None)
        end = self._run_log.control_end(picture.cut)
        examples = [self._example(picture, chosen) for chosen in chosen_sessions(picture)]
        style = (STATIC / "console.css").read_text(encoding="utf-8")
        return (
            environment()
            .get_template("report.html")
            .render(
                run=self._run,
                report=run_report(picture, self._run_log.course, end, examples),
                audit=audit,
                style=style + file_text("timeline.css"),
                script=file_text("timeline.js"),
                data=packed(self._timelines.data(TimelinePage(end))),
            )
        )

    def _example(self, picture: RunPicture, chosen: ChosenSession) -> ExampleSession:
        try:
            turns = self._sessions.messages(picture.cut, chosen.row.session_id)
        except SessionNotOnLog:  # retention removed its events
            turns = ()
        further = max(0, len(turns) - _MOST_TURNS)
        return ExampleSession(chosen.why, chosen.row, turns[:_MOST_TURNS], further)


def report_of(
    kafka: KafkaSettings,
    run: str,
    trained: Path | None,
    audit: AuditReport | None,
    show: Callable[[int, int], object],
    stopping: Callable[[], bool],
) -> str:
    """Read a whole log and return its report; `show` gets the counts of records read and left.

    Raises `KafkaUnavailable` if Kafka goes away, or once `stopping`.
    """
    lookup = RecordLookup(kafka)
    run_log = RunLog(lookup, RawDecoder(kafka))
    follower = Follower(kafka, run_log)
    follower.start()
    try:
        while not follower.following.whole:
            show(follower.following.read, follower.following.left)
            if stopping() or follower.following.away:
                reason = follower.following.away or "stopped as asked"
                raise KafkaUnavailable(kafka.bootstrap_servers, 0, reason)
            time.sleep(_LOOK_S)
        return RunReporter(run_log, run, trained).html(audit)
    finally:
        follower.close()
        lookup.close()
