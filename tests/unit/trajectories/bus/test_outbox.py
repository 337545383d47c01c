"""Events of a manager that come back to it from the log."""

import pytest

from seamlessflow.consumers.trajectories.bus.outbox import Echoes
from seamlessflow.schemas.codec import UndecodableRecord, encode
from tests.builders.records.sessions import rewarded, started


def test_an_event_that_was_sent_is_the_one_read_back() -> None:
    echoes, event = Echoes(), started()
    echoes.expect(encode(event), event)

    assert echoes.decode(encode(started())) is event


def test_what_comes_again_or_from_others_is_decoded() -> None:
    echoes, event = Echoes(), started()
    echoes.expect(encode(event), event)
    echoes.decode(encode(event))

    again, other = echoes.decode(encode(event)), echoes.decode(encode(rewarded()))

    assert again is not event
    assert (again, other) == (event, rewarded())


def test_what_was_forgotten_is_decoded() -> None:
    echoes, event = Echoes(), started()
    echoes.expect(encode(event), event)
    echoes.forget()

    read = echoes.decode(encode(event))

    assert read is not event
    assert read == event


def test_bytes_that_are_no_record_are_refused() -> None:
    with pytest.raises(UndecodableRecord):
        Echoes().decode(b"no record")
