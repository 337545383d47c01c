"""Records of `ended_sessions` that count, and those that are garbage."""

import pytest

from seamlessflow.consumers.trajectories.bus.readers import decode_ended
from seamlessflow.schemas.codec import UndecodableRecord, encode
from tests.builders.records import sessions


def test_an_ended_session_has_whole_hashes() -> None:
    for calls in (b"", bytes(8), bytes(24)):
        ended = sessions.ended(calls=calls)
        assert decode_ended(encode(ended)) == ended
    with pytest.raises(UndecodableRecord, match="calls have 9 bytes, no multiple of 8"):
        decode_ended(encode(sessions.ended(calls=bytes(9))))
    with pytest.raises(UndecodableRecord, match="named_calls have 9 bytes"):
        decode_ended(encode(sessions.ended(named_calls=bytes(9))))


def test_a_record_of_another_kind_is_no_ended_session() -> None:
    with pytest.raises(UndecodableRecord, match="SessionClosed is not an ended session"):
        decode_ended(encode(sessions.closed()))
