"""Storages by their URL: a directory with any name, and what fsspec would make of it."""

from pathlib import Path

import pytest

from seamlessflow.infra.blobs import FsspecStore
from seamlessflow.infra.network.storages import local_path, storage_at, unusable
from tests.paths import HARD_NAMES


@pytest.mark.parametrize("name", HARD_NAMES)
def test_the_url_of_a_directory_leads_to_that_directory(tmp_path: Path, name: str) -> None:
    directory = tmp_path / name / "blobs"

    assert local_path(directory.as_uri()) == directory
    assert storage_at(directory.as_uri())[1] == str(directory)
    assert not unusable(directory.as_uri())


@pytest.mark.parametrize("name", HARD_NAMES)
def test_a_blob_lies_in_the_directory_of_its_url(tmp_path: Path, name: str) -> None:
    directory = tmp_path / name / "blobs"
    blob = FsspecStore(directory.as_uri()).put(b"content")

    assert (directory / blob).read_bytes() == b"content"
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    "url", ["file:///mnt/a b#c?d,é", "file:///mnt/a%20b#c?d,é", "/mnt/a b#c?d,é"]
)
def test_an_address_may_be_written_with_or_without_escapes(url: str) -> None:
    assert local_path(url) == Path("/mnt/a b#c?d,é")


def test_a_path_without_a_scheme_has_no_escapes() -> None:
    assert local_path("/mnt/50%20") == Path("/mnt/50%20")


@pytest.mark.parametrize("url", ["weights", "file://weights", "local://weights"])
def test_a_path_that_is_not_whole_is_refused(url: str) -> None:
    assert "no whole path" in unusable(url)


@pytest.mark.parametrize("url", ["s3q://bucket/run", "nope://x"])
def test_a_storage_that_is_not_known_is_refused(url: str) -> None:
    assert "not known" in unusable(url)


def test_another_storage_is_no_directory() -> None:
    assert local_path("memory://run") is None
