"""A session `g.0.0` on all topics of the log, from its group's admission to published weights."""

from collections.abc import Iterable
from typing import Any

from seamlessflow.consumers.trajectories.sessions.assemble import trajectory
from seamlessflow.infra.kafka.client import Received
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record, StepGroup
from seamlessflow.schemas.topics import (
    CONTROL,
    PROMPTS,
    REPLIES,
    REQUESTS,
    SESSIONS,
    TASKS,
    TRAJECTORIES,
    Headers,
)
from tests.builders.records import commands, control, prompts, replies, sessions
from tests.builders.records.content import ids
from tests.builders.records.tasks import task
from tests.builders.trajectories.session_builder import SessionBuilder

ID = "g.0.0"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACED: Headers = [("traceparent", f"00-{TRACE}-00f067aa0ba902b7-01".encode())]
OWN: dict[str, Any] = {"session_id": ID}

ADMITTED = (CONTROL.name, control.admitted("g"))
QUEUED = (TASKS.name, task(group_id="g", task_id="t"))
OPENED = (
    (REQUESTS.name, commands.open_session(**OWN, group_id="g")),
    (SESSIONS.name, sessions.opened(**OWN, group_id="g")),
)
BEGUN = (
    (REQUESTS.name, commands.request_turn(**OWN)),
    (SESSIONS.name, sessions.started(**OWN)),
    (SESSIONS.name, sessions.dispatched(**OWN)),
    (PROMPTS.name, prompts.generate(**OWN, turn_id="a", dispatch=1)),
)
ANSWERED = (
    (SESSIONS.name, sessions.completed(ids(3, 4, 5), **OWN)),
    (REPLIES.name, replies.finished(**OWN, turn_id="a")),
)
JUDGED = (
    (SESSIONS.name, sessions.rewarded(0.5, **OWN)),
    (SESSIONS.name, sessions.closed(**OWN)),
    (SESSIONS.name, sessions.finalized(**OWN)),
)
READY = (CONTROL.name, control.ready("g", sessions=(ID,), reward_mean=0.5))
BATCH = (CONTROL.name, control.batch_ready(4, groups=("g",)))
STARTED = (CONTROL.name, control.started(["w1"], 4))
COMMITTED = (CONTROL.name, control.committed(4, [StepGroup(group_id="g", sessions=(ID,))]))
PUBLISHED = (
    (CONTROL.name, control.published(5)),
    (CONTROL.name, control.completed(4)),
)
Placed = tuple[str, Record]


def finished() -> tuple[str, r.Trajectory]:
    """Return the trajectory of the session."""
    placed = (*OPENED, *BEGUN, *ANSWERED, *JUDGED)
    built = SessionBuilder().apply(*(event for topic, event in placed if topic == SESSIONS.name))
    return TRAJECTORIES.name, trajectory(built.session, 0)


def trained() -> list[Placed]:
    """Return all records of the session in their order, up to the weights that it changed."""
    records = (ADMITTED, QUEUED, *OPENED, *BEGUN, *ANSWERED, *JUDGED)
    return [*records, finished(), READY, BATCH, STARTED, COMMITTED, *PUBLISHED]


def received(placed: Iterable[Placed], headers: Headers = ()) -> list[Received]:
    """Return the records as read from the log, one every 10 ms, their offsets ascending."""
    return [
        Received(topic, 0, offset, 1_000 + 10 * offset, None, headers, record)
        for offset, (topic, record) in enumerate(placed)
    ]
