"""A session `s` of the group `g` as the console explains it, from its events and `control`."""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import orjson

from seamlessflow.console.views.session.reason import ReasonRow, TokenReason
from seamlessflow.console.views.session.reasons import (
    ExplainedTokens,
    SessionSources,
    explained,
)
from seamlessflow.console.views.session.trained_runs import NO_RUNS, StepName, TrainedRuns
from seamlessflow.consumers.trajectories.sessions.assemble import trajectory as assemble
from seamlessflow.infra.kafka.client import Received
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import CONTROL, SESSIONS, TRAJECTORIES
from seamlessflow.trainer.steps.trained import TrainedRun
from tests.builders.auditing.trained_files import run
from tests.builders.records import control, sessions
from tests.builders.records.content import ids
from tests.builders.trajectories.session_builder import SessionBuilder

SESSION = sessions.SESSION
STEP: StepName = ("", 1, "a")
"""Name of the step 0 of `control.committed`."""
OPENED = sessions.opened(group_id="g")
ANSWERED = (
    sessions.started("a"),
    sessions.dispatched("a"),
    sessions.completed(ids(3, 4, 5), "a"),
)
ENDED = (sessions.rewarded(0.5), sessions.closed(), sessions.finalized())
WHOLE = (OPENED, *ANSWERED, *ENDED)
"""A prompt of two tokens, and an answer of three."""
READY = control.ready("g", sessions=(SESSION,))


def logged(topic: str, records: Iterable[Record]) -> list[Received]:
    """Return records as a topic has them, the first at offset 0."""
    return [
        Received(topic, 0, offset, 10 * offset, None, (), record)
        for offset, record in enumerate(records)
    ]


def explanation(
    events: Sequence[Record] = WHOLE,
    of_control: Sequence[Record] = (),
    runs: Mapping[StepName, Sequence[TrainedRun]] | None = None,
    trajectory: r.Trajectory | None = None,
    session_id: str = SESSION,
) -> ExplainedTokens:
    """Return the session's tokens; its trajectory is on the log if it is given.

    Under another `session_id` its events are those of that session.
    """
    events = [_of_session(event, session_id) for event in events]
    places = logged(TRAJECTORIES.name, [trajectory] if trajectory else [])
    tokens = explained(
        SessionSources(
            session_id=session_id,
            events=logged(SESSIONS.name, events),
            trajectory=places[0] if places else None,
            control=logged(CONTROL.name, of_control),
            trained=NO_RUNS if runs is None else TrainedRuns(runs),
        )
    )
    assert tokens is not None
    return tokens


def trajectory_of(events: Sequence[Record], **changes: Any) -> r.Trajectory:
    """Return the trajectory that a manager makes of these events."""
    return replace(assemble(SessionBuilder().apply(*events).session, 0), **changes)


def row_of(tokens: ExplainedTokens, place: int) -> ReasonRow:
    """Return the reason of the token at a place of the tree."""
    return tokens.rows[int(tokens.reasons_T[place])]


def kinds(tokens: ExplainedTokens) -> list[TokenReason]:
    """Return the kind of each token's reason, in the order of the tree."""
    return [tokens.rows[number].kind for number in tokens.reasons_T.tolist()]


def committed(count: int | None = 3, **changes: Any) -> r.StepCommitted:
    """Return a step that trained so many tokens of the session, None for none of them."""
    group = r.StepGroup(group_id="g", sessions=(SESSION,), **changes.pop("of_group", {}))
    trained = {} if count is None else {SESSION: count}
    step = changes.pop("step", 0)
    return control.committed(step, [group], **{"trained_tokens": trained, **changes})


def lineage(trainer: Mapping[str, Any], lag: int = 1) -> r.LineageStarted:
    """Return the record of the settings that a lineage's steps are made with."""
    settings = orjson.dumps({"run": {"lag": lag}, "trainer": dict(trainer)})
    return r.LineageStarted(at_ms=0, policy="p", lineage="a", step=0, settings=settings)


def method(kind: str, name: str) -> r.StepMethod:
    """Return a method as a step records it."""
    return r.StepMethod(kind=kind, name=name, version=1, settings_hash="", source_sha256="")


def rows_of(first: int, *tokens: int, **more: Any) -> TrainedRun:
    """Return a row of `trained/` about the answer of turn `a`."""
    return run(tokens, first, **more)


def finite(values: "np.ndarray[Any, Any]") -> list[float | None]:
    """Return numbers, None where there is none."""
    return [None if np.isnan(value) else float(value) for value in values]


def _of_session(event: Record, session_id: str) -> Record:
    if getattr(event, "session_id", None) != SESSION:
        return event
    copied = copy(event)
    object.__setattr__(copied, "session_id", session_id)
    return copied
