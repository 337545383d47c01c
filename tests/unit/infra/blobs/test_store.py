"""Object storage: blobs under the hash of their content, in a directory and elsewhere."""

import hashlib
from pathlib import Path
from uuid import uuid4

import pytest

from seamlessflow.infra.blobs.store import FsspecStore
from seamlessflow.infra.errors import ENDS_PROCESS, BlobUnavailable, SettingsRejected
from tests.builders.disks.file_limit import largest_file


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
