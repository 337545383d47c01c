"""Blobs by the hash of their content, and references to those of records."""

import hashlib
from pathlib import Path
from uuid import uuid4

import pytest

from seamlessflow.infra.blobs import (
    NO_LIMIT,
    FsspecStore,
    blob_store,
    following,
    largest_trajectory,
    reference,
    referred,
    too_large,
)
from seamlessflow.infra.errors import ENDS_PROCESS, BlobUnavailable, SettingsRejected
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.codec import decode, encode
from seamlessflow.schemas.topics import CONTROL, ENDED_SESSIONS, TRAJECTORIES
from tests.builders.disks.file_limit import largest_file
from tests.builders.records import control

LOST = encode(control.lost())


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> FsspecStore:
    if request.param == "file":
        return FsspecStore((tmp_path / "blobs").as_uri())
    return FsspecStore(f"memory://{uuid4().hex}")


def test_content_comes_back_by_its_hash(store: FsspecStore) -> None:
    name = store.put(b"content")

    assert name == hashlib.sha256(b"content").hexdigest()
    assert store.get(name) == b"content"


def test_the_same_content_is_one_blob(store: FsspecStore) -> None:
    assert store.put(b"content") == store.put(b"content")

    assert store.remove(store.put(b"content"))
    assert not store.remove(hashlib.sha256(b"content").hexdigest())


def test_a_blob_that_is_gone_is_a_lasting_error(store: FsspecStore) -> None:
    missing = hashlib.sha256(b"never written").hexdigest()

    with pytest.raises(BlobUnavailable, match="is not there") as raised:
        store.get(missing)

    assert raised.value.lasting


@pytest.mark.parametrize("name", ["", "../kafka/meta.properties", "A" * 64, "0" * 63 + "/"])
def test_a_name_from_the_log_leads_nowhere_else(store: FsspecStore, name: str) -> None:
    for work in (store.get, store.remove):
        with pytest.raises(BlobUnavailable, match="is no hex SHA-256"):
            work(name)


def test_changed_content_is_refused(tmp_path: Path) -> None:
    store = FsspecStore(tmp_path.as_uri())
    name = store.put(b"content")
    (tmp_path / name).write_bytes(b"another")

    with pytest.raises(BlobUnavailable, match="has other content") as raised:
        store.get(name)

    assert raised.value.lasting


def test_a_write_that_fails_leaves_nothing_and_may_be_repeated(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file where a directory should be")

    with pytest.raises(BlobUnavailable) as raised:
        FsspecStore((tmp_path / "taken").as_uri()).put(b"content")

    assert not raised.value.lasting
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_a_full_disk_leaves_nothing_and_is_named(tmp_path: Path) -> None:
    with largest_file(10), pytest.raises(BlobUnavailable, match="File too large") as raised:
        FsspecStore(tmp_path.as_uri()).put(b"more than ten bytes")

    assert not raised.value.lasting
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["nowhere://bucket/path", "s3://bucket/path"])
def test_an_unknown_storage_is_refused_by_the_name_of_its_variable(url: str) -> None:
    with pytest.raises(SettingsRejected, match="SEAMLESSFLOW_KAFKA__BLOBS"):
        FsspecStore(url)


def test_a_blob_that_cannot_be_written_is_no_fault_of_one_session() -> None:
    assert issubclass(BlobUnavailable, ENDS_PROCESS)


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
