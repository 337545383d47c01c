"""Conversations of a golden log that go on from recorded ones."""

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import uuid4

import orjson

from seamlessflow.consumers.trajectories.sessions.partition import LoggedPartition
from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.kafka.topics.partitions import partition_of
from seamlessflow.infra.kafka.whole_topic import read_partitions
from seamlessflow.recorded.fork.copying import RecordedOn, forked_prefix
from seamlessflow.recorded.select.refold import Refold
from seamlessflow.schemas import records as r
from seamlessflow.schemas.forks import PLAYBACK, history, of_session
from seamlessflow.schemas.identity import session_name
from seamlessflow.schemas.topics import REQUESTS, SESSIONS
from tests.builders.own_topics import SMALL
from tests.golden.conversations import (
    CHAT_TOOLS,
    add_by_chat,
    add_by_messages,
    add_by_responses,
    chat,
    streamed_chat,
    user,
)
from tests.golden.recording_system import KEY_NAME, Agent, RecordingSystem

CHECK = {"role": "user", "content": "check your work"}
PLAYED: dict[str, Callable[[Agent], object]] = {
    "chat-plain": partial(add_by_chat, say=chat),
    "chat-streamed": partial(add_by_chat, say=streamed_chat),
    "messages-False": partial(add_by_messages, streamed=False),
    "messages-True": partial(add_by_messages, streamed=True),
    "responses-False": partial(add_by_responses, streamed=False),
    "responses-True": partial(add_by_responses, streamed=True),
}
"""Ended conversations, and how their agent asks again."""


def recorded(system: RecordingSystem, session_id: str) -> tuple[Session, RecordedOn]:
    """Return an ended session, folded again from the log."""
    number = partition_of(session_name(session_id), SMALL[SESSIONS.name].partitions)
    fold = Refold(LoggedPartition(number))
    for item in read_partitions(system.running.kafka, [(SESSIONS.name, number)]):
        ended = fold.apply(item.record, item.offset)
        if ended is not None and ended.session_id == session_id:
            return ended, RecordedOn(number)
    raise AssertionError(f"{session_id} has not ended")


def begin(system: RecordingSystem, name: str, fork: r.ForkedPrefix, policy: str) -> Agent:
    """Open a session with this beginning; return the agent that works in it."""
    session_id = f"{KEY_NAME}.{name}"
    command = r.OpenSession(
        command_id=uuid4().hex,
        session_id=session_id,
        issued_at_ms=now_ms(),
        expires_at_ms=now_ms() + 60_000,
        policy=policy,
        fork=fork,
    )
    system.running.producer.send(REQUESTS.name, command, key=session_id)
    system.running.producer.flush(30)
    system.running.expect(r.SessionOpened, lambda record: record.session_id == session_id)
    system.opened.append(session_id)
    return system.unopened(session_id=name)


def from_the_middle(system: RecordingSystem) -> None:
    """Go on behind a tool result, alone and with a message behind it."""
    session, log = recorded(system, "chat-streamed")
    last = [*session.turns][-1]
    message = orjson.dumps(CHECK, option=orjson.OPT_SORT_KEYS)
    checked = forked_prefix(session, last, log, appended=[message])
    for name, fork in (("middle", forked_prefix(session, last, log)), ("checked", checked)):
        agent = begin(system, name, fork, "by-ids")
        begun = [orjson.loads(text) for text in history(of_session(fork, f"{KEY_NAME}.{name}"))]
        for _ in range(2):
            chat(agent, begun, tools=CHAT_TOOLS)
        system.end(f"{KEY_NAME}.{name}", 1.0)


def played_back(system: RecordingSystem) -> None:
    """Ask again as recorded, in all dialects."""
    for source, ask_again in PLAYED.items():
        session, log = recorded(system, source)
        fork = forked_prefix(session, [*session.turns][-1], log, PLAYBACK)
        agent = begin(system, f"played-{source}", fork, session.opened.policy)
        ask_again(agent)
        system.end(f"{KEY_NAME}.played-{source}", 1.0)


def diverged(system: RecordingSystem) -> None:
    """Ask otherwise than recorded."""
    session, log = recorded(system, "chat-plain")
    fork = forked_prefix(session, [*session.turns][-1], log, PLAYBACK)
    agent = begin(system, "diverged", fork, session.opened.policy)
    body: dict[str, Any] = {"messages": [user("something else")], "max_tokens": 8}
    answer = agent.post("/chat/completions", body)
    assert answer.status_code == 409, answer.text
    assert "message 1 was" in answer.json()["error"]["message"], answer.text


def all_of_them(system: RecordingSystem) -> None:
    """Have all these conversations, behind those that they go on from."""
    from_the_middle(system)
    played_back(system)
    diverged(system)
