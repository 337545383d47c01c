"""Pages for single sessions, and ranges of their tokens. Any thread.

Right after a page, a browser asks for token ranges at the same moment. So the last sessions shown
are kept.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from seamlessflow.console.log.index import Cut
from seamlessflow.console.log.run_log import RunLog
from seamlessflow.console.views.session.page import SessionPage, session_page
from seamlessflow.console.views.session.reasons import ExplainedTokens, explained
from seamlessflow.console.views.session.sources import session_asked_for, session_sources
from seamlessflow.console.views.session.token_range import (
    TokenRange,
    TurnMessages,
    session_messages,
    token_range,
)
from seamlessflow.console.views.session.trained_runs import TrainedRuns
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.rendering.tokenizer import Tokenizer
from seamlessflow.recorded.show.log import tokenizer_of
from seamlessflow.schemas.topics import CONTROL, SESSIONS, TRAJECTORIES

_KEPT = 4
_READ = (SESSIONS.name, TRAJECTORIES.name, CONTROL.name)
SessionAtCut = tuple[str, tuple[int, ...]]


class SessionNotOnLog(SeamlessFlowError):
    """A session about which nothing is on the log, up to the moment that is shown."""

    lasting = True

    def __init__(self, session_id: str, records: int) -> None:
        self.session_id = session_id
        super().__init__(f"no session {session_id} among the {records} records of this moment")


class SessionPages:
    """Sessions with a reason for each token; the last few are kept."""

    def __init__(self, run_log: RunLog, trained: Path | None) -> None:
        """Show a log's sessions; `trained`: directory with the run's trained tokens."""
        self._run_log = run_log
        self._trained = trained
        self._kept: OrderedDict[SessionAtCut, tuple[ExplainedTokens, TrainedRuns]] = OrderedDict()
        self._tokenizers: dict[str, Tokenizer | None] = {}
        self._keeping = threading.Lock()

    def page(self, cut: Cut, session_id: str) -> SessionPage:
        """Return a session's page. Raises `SessionNotOnLog` and what the lookup raises."""
        return session_page(*self._explained(cut, session_id))

    def tokens(self, cut: Cut, session_id: str, begin: int, end: int) -> TokenRange:
        """Return a token range of a session; raises as `page`, and `RangeRefused`."""
        tokens, _ = self._explained(cut, session_id)
        return token_range(tokens, begin, end, self._spell(tokens.columns.trajectory.policy))

    def messages(self, cut: Cut, session_id: str) -> tuple[TurnMessages, ...]:
        """Return the messages in a session's turns; raises as `page`."""
        tokens, _ = self._explained(cut, session_id)
        return session_messages(tokens)

    def _explained(self, cut: Cut, session_id: str) -> tuple[ExplainedTokens, TrainedRuns]:
        key = session_id, tuple(rows for (topic, _), rows in sorted(cut.items()) if topic in _READ)
        with self._keeping:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        name = session_asked_for(self._run_log, cut, session_id)
        sources = session_sources(self._run_log, cut, name, self._trained)
        tokens = explained(sources)
        if tokens is None:
            raise SessionNotOnLog(session_id, sum(cut.values()))
        with self._keeping:
            self._kept[key] = tokens, sources.trained
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return tokens, sources.trained

    def _spell(self, policy: str) -> Callable[..., str] | None:
        """Return the decoder of a policy's tokenizer, or None if that is not on this machine."""
        if policy not in self._tokenizers:
            weights = self._run_log.picture(None).fleet.policies.get(policy)
            if weights is None:  # it may come yet
                return None
            self._tokenizers[policy] = tokenizer_of(weights)
        tokenizer = self._tokenizers[policy]
        return None if tokenizer is None else tokenizer.decode
