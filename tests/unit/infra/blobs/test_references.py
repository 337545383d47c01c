"""Records that are too large for their topic: references that lead back to the same bytes."""

from pathlib import Path

import pytest

from seamlessflow.infra.blobs.references import (
    NO_LIMIT,
    blob_store,
    following,
    largest_trajectory,
    reference,
    referred,
    too_large,
)
from seamlessflow.infra.blobs.store import FsspecStore
from seamlessflow.infra.errors import BlobUnavailable
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.codec import decode, encode
from seamlessflow.schemas.topics import CONTROL, ENDED_SESSIONS, TRAJECTORIES
from tests.builders.records import control

LOST = encode(control.lost())


def test_only_records_near_the_limit_of_their_topic_are_too_large() -> None:
    at_limit = bytes(CONTROL.max_record_bytes)

    assert too_large(CONTROL.name, at_limit) and too_large(CONTROL.dead_letters, at_limit)
    assert not too_large(CONTROL.name, LOST)
    assert not too_large(TRAJECTORIES.name, at_limit)
    assert not too_large("a topic of another contract", at_limit)


def test_a_topic_with_a_prefix_has_the_limit_of_its_name() -> None:
    assert too_large(f"replayed.{TRAJECTORIES.name}", bytes(TRAJECTORIES.max_record_bytes))
    # Not the larger one of `sessions`, whose name it ends with.
    assert too_large(f"run.{ENDED_SESSIONS.name}", bytes(ENDED_SESSIONS.max_record_bytes))


def test_a_reference_leads_back_to_the_record(tmp_path: Path) -> None:
    store = FsspecStore(tmp_path.as_uri())
    made = referred(store, LOST)

    assert (made.size, made.record) == (len(LOST), "WorkerLost")
    assert following(store, decode)(encode(made)) == decode(LOST)
    assert following(store, decode)(LOST) == decode(LOST)
    assert reference(encode(made)) == made and reference(LOST) is None


def test_the_bytes_that_a_decoder_gets_are_those_that_were_sent(tmp_path: Path) -> None:
    store, seen = FsspecStore(tmp_path.as_uri()), []

    def noting(value: bytes) -> object:
        seen.append(value)
        return decode(value)

    following(store, noting)(encode(referred(store, LOST)))  # type: ignore[arg-type]

    assert seen == [LOST]


def test_a_reference_without_a_storage_names_the_variable(tmp_path: Path) -> None:
    made = encode(referred(FsspecStore(tmp_path.as_uri()), LOST))

    with pytest.raises(BlobUnavailable, match=r"SEAMLESSFLOW_KAFKA__BLOBS.*holds a WorkerLost"):
        following(None, decode)(made)


def test_without_a_storage_a_trajectory_has_the_limit_of_its_topic(tmp_path: Path) -> None:
    with_storage = KafkaSettings(blobs=tmp_path.as_uri())

    assert largest_trajectory(KafkaSettings()) == TRAJECTORIES.max_record_bytes
    assert largest_trajectory(with_storage) == NO_LIMIT
    assert blob_store(KafkaSettings()) is None and blob_store(with_storage) is not None
