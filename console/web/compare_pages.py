"""Comparisons of two moments, two runs, or two sets of rules for a session. Any thread."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from seamlessflow.console.log.moment import BadMoment, MomentNotOnLog, parse_moment
from seamlessflow.console.log.run_log import RunLog, RunPicture
from seamlessflow.console.models.course import Course
from seamlessflow.console.views.compare.moments import (
    MOST_WINDOW,
    WINDOW,
    EarlierEnd,
    MomentsCompared,
    PictureAt,
    earlier_ends,
    moments_compared,
)
from seamlessflow.console.views.compare.rules import RulesCompared, rules_compared, rules_query
from seamlessflow.console.views.compare.runs import RunsCompared, runs_compared
from seamlessflow.console.views.query import Query, RunNotBeside
from seamlessflow.console.views.session.sources import (
    late_rewards_of,
    session_asked_for,
    session_events,
)
from seamlessflow.infra.errors import SeamlessFlowError

_OTHER = "with"


class NothingToMerge(SeamlessFlowError):
    """A session without events up to the moment that is shown."""

    lasting = True

    def __init__(self, session_id: str, records: int) -> None:
        self.session_id = session_id
        super().__init__(
            f"no event opens a session {session_id[:200]} among the {records} records of this "
            "moment, so it cannot be merged again; retention may have removed it, and a recording "
            "has no events"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparePage:
    """The whole page; what is not compared is None."""

    window: int
    """Steps that each mean covers."""
    ends: Sequence[EarlierEnd]
    """Ends of earlier steps, with which the moment may be compared."""
    runs: Sequence[str]
    """Names of the runs beside this one."""
    moments: MomentsCompared | None = None
    beside: RunsCompared | None = None
    rules: RulesCompared | None = None


class ComparePages:
    """Comparisons within a log, and with other runs by name."""

    def __init__(self, run_log: RunLog, beside: Mapping[str, Course], option: str) -> None:
        """Prepare; `option`: the one by which a command finds the run."""
        self._run_log = run_log
        self._beside = beside
        self._option = option

    def page(self, picture: RunPicture, query: Query) -> ComparePage:
        """Return the comparison that a query asks for: of rules, else runs, else moments.

        Raises `QueryRejected`, `BadMoment`, `MomentNotOnLog`, `RunNotBeside`, `NothingToMerge` and
        what the log raises.
        """
        window = query.number("window", 1, MOST_WINDOW) or WINDOW
        end = self._run_log.control_end(picture.cut)
        rules = runs = moments = None
        if query.text("session"):
            rules = self._rules(picture, query)
        elif query.text("beside"):
            runs = self._runs(end, query, window)
        elif query.text(_OTHER):
            moments = self._moments(picture, query, window)
        return ComparePage(
            window=window,
            ends=earlier_ends(self._run_log.course, query.text("policy"), end),
            runs=list(self._beside),
            moments=moments,
            beside=runs,
            rules=rules,
        )

    def _moments(self, picture: RunPicture, query: Query, window: int) -> MomentsCompared:
        pictures = (picture, self._other(query.text(_OTHER)))
        sides = [PictureAt(each, self._run_log.control_end(each.cut)) for each in pictures]
        return moments_compared(self._run_log.course, sides, query.text("policy"), window)

    def _other(self, text: str) -> RunPicture:
        try:
            return self._run_log.picture(parse_moment(text))
        except BadMoment as error:
            raise BadMoment(error.text, error.reason, _OTHER) from error
        except MomentNotOnLog as error:
            raise MomentNotOnLog(error.moment, error.reason, _OTHER) from error

    def _runs(self, end: int, query: Query, window: int) -> RunsCompared:
        name = query.text("beside")
        if name not in self._beside:
            raise RunNotBeside(name, list(self._beside))
        other = (name, self._beside[name])
        step = query.number("step", 1)
        policy = query.text("policy")
        return runs_compared(self._run_log.course, end, policy, other, step, window)

    def _rules(self, picture: RunPicture, query: Query) -> RulesCompared:
        asked = rules_query(query)
        # A session's name is enough, as on its page.
        whole_id = session_asked_for(self._run_log, picture.cut, asked.session_id)
        asked = replace(asked, session_id=whole_id)
        events = session_events(self._run_log, picture.cut, asked.session_id)
        late = (
            late_rewards_of(self._run_log, picture.cut, asked.session_id, events)
            if asked.with_late
            else ()
        )
        compared = rules_compared(events, asked, late, self._option)
        if compared is None:
            raise NothingToMerge(asked.session_id, sum(picture.cut.values()))
        return compared
