"""Records that are about erased sessions, and those that the copy gets."""

from pathlib import Path

import pytest

from seamlessflow.infra.blobs import FsspecStore, following, referred
from seamlessflow.infra.errors import NewerRelease
from seamlessflow.infra.kafka.client import Received
from seamlessflow.infra.kafka.unreadable import Raw
from seamlessflow.recorded.erase.erased_sessions import ErasedSessions
from seamlessflow.recorded.erase.sieve import Sieve, TopicErasure
from seamlessflow.schemas.codec import HEADER_BYTES, MARKER, decode, encode
from seamlessflow.schemas.records import Record, SampleFailed
from tests.builders.records import commands, control, replies, sessions
from tests.builders.records.replies import tensor
from tests.builders.records.tasks import task
from tests.builders.trajectories.conversation import forked, recorded_prefix
from tests.builders.trajectories.session_builder import finished

NEWER = MARKER + bytes(HEADER_BYTES)


def item(value: bytes, key: bytes = b"other") -> Received:
    return Received("t", 0, 0, 0, None, (), Raw(value, key))


def kept(
    value: bytes, *asked: str, topic: str = "sessions", key: bytes = b"other", drop: bool = False
) -> tuple[Raw | None, TopicErasure]:
    counts = TopicErasure()
    sieve = Sieve(ErasedSessions.from_names(asked), drop)
    return sieve.kept(topic, item(value, key), counts), counts


@pytest.mark.parametrize(
    ("asked", "record", "theirs"),
    [
        ("a", sessions.opened(session_id="a"), True),
        ("a", sessions.opened(session_id="a~1"), True),
        ("a~1", sessions.opened(session_id="a~2"), False),
        ("a~1", sessions.opened(session_id="a"), False),
        ("a~1", commands.cancel_turn(session_id="a"), True),
        ("g.0.0", task(group_id="g", sample=0, attempt=0), True),
        ("g.0.1", task(group_id="g", sample=0, attempt=0), False),
        ("g", control.ready(group_id="g"), False),
    ],
)
def test_a_record_is_about_the_session_that_it_names(
    asked: str, record: Record, theirs: bool
) -> None:
    assert ErasedSessions.from_names([asked]).concern(record) is theirs


def test_a_failure_loses_its_text_and_keeps_its_place() -> None:
    failed = control.sample_failed(group_id="g", sample=1, detail="a text")
    raw, counts = kept(encode(failed), "g.1.0", topic="control")
    assert raw is not None and decode(raw.value) == control.sample_failed(group_id="g", sample=1)
    assert (counts.copied, counts.emptied) == (1, 1)
    other, _ = kept(encode(failed), "g.0.0", topic="control")
    assert other is not None and isinstance(decode(other.value), SampleFailed)
    assert b"a text" in other.value


def test_the_session_of_a_judge_that_was_asked_about_an_erased_one_is_named() -> None:
    judging = {"session_id": "judge-1", "purpose": "judge", "metadata": {"judged": "a"}}
    record = sessions.opened(**judging)
    raw, counts = kept(encode(record), "a")
    assert raw is not None and counts.forks == {"judge-1"}
    assert not kept(encode(record), "b")[1].forks
    assert kept(encode(record), "judge-1")[0] is None


def test_what_cannot_be_decoded_is_searched_and_left_out_if_asked() -> None:
    assert kept(b"junk of session-1 here", "session-1", topic="sessions.dlq")[0] is None
    assert kept(b"junk", "session-1", key=b"session-1", topic="sessions.dlq")[0] is None
    raw, counts = kept(b"junk", "session-1", topic="sessions.dlq")
    assert raw == Raw(b"junk", b"other") and counts.undecodable == 1
    raw, counts = kept(b"junk", "session-1", topic="sessions.dlq", drop=True)
    assert raw is None and (counts.dropped, counts.undecodable) == (1, 0)
    mark, counts = kept(b"", "session-1", topic="tasks.dlq", drop=True)
    assert mark is not None and (counts.dropped, counts.undecodable) == (0, 0)


def test_blobs_of_erased_records_are_named() -> None:
    array = tensor(data=None, uri="file:///blob")
    raw, counts = kept(encode(replies.delta(session_id="a", tensors=(array,))), "a")
    assert raw is None and counts.blobs == {"file:///blob"}


def test_a_blob_is_searched_and_listed_if_its_record_is_erased(tmp_path: Path) -> None:
    store = FsspecStore(tmp_path.as_uri())
    made = referred(store, encode(sessions.opened(session_id="session-1")))
    whole = following(store, decode)

    for asked, stored in (("session-1", {made.sha256}), ("session-2", set[str]())):
        counts = TopicErasure()
        raw = Sieve(ErasedSessions.from_names([asked]), whole=whole).kept(
            "sessions", item(encode(made)), counts
        )
        assert (raw is None, counts.stored) == (bool(stored), stored)

    store.remove(made.sha256)
    counts = TopicErasure()
    sieve = Sieve(ErasedSessions.from_names(["session-1"]), whole=whole)
    assert sieve.kept("sessions", item(encode(made), b"session-1"), counts) is None
    assert sieve.kept("sessions", item(encode(made)), counts) is not None
    assert (counts.erased, counts.undecodable) == (1, 1)


def test_a_record_of_a_newer_release_ends_the_erasure_but_for_dead_letters() -> None:
    with pytest.raises(NewerRelease):
        kept(NEWER, "a")
    assert kept(NEWER, "a", topic="sessions.dlq")[1].undecodable == 1


def test_one_that_looks_newer_is_left_out_and_counted_if_asked() -> None:
    raw, counts = kept(NEWER, "a", drop=True)
    assert raw is None
    assert (counts.dropped, counts.undecodable, counts.copied) == (1, 0, 0)


@pytest.mark.parametrize(
    ("record", "named"),
    [
        (sessions.opened(session_id="f", fork=recorded_prefix()), "f"),
        (task(group_id="g", sample=1, attempt=0, fork=recorded_prefix()), "g.1.0"),
        (finished(forked()), "fork"),
        (sessions.opened(session_id="f"), ""),
    ],
)
def test_sessions_that_began_with_a_copy_of_an_erased_one_are_named(
    record: Record, named: str
) -> None:
    copy, counts = kept(encode(record), "recorded")

    assert copy is not None
    assert counts.forks == ({named} if named else set())
    assert kept(encode(record), "another")[1].forks == set()
