"""A version is hashed once a host, and again as soon as anything of it was written since."""

import os
import stat
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from seamlessflow.infra.weights.hashing import HostMarks
from seamlessflow.infra.weights.manifest import MANIFEST, Manifest, WeightsInvalid, publish, verify
from seamlessflow.infra.weights.versions import PublishedWeights

FACTS = Manifest(policy="p", version=1, optimizer_step=1, lineage="a", dtype="float32")
MODEL = "model.safetensors"
SIZE = 3_000_000


@pytest.fixture
def own_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def put(root: Path, version: int = 1) -> PublishedWeights:
    """Publish one file, whose change is so long ago that the next one has another time."""

    def fill(draft: Path) -> None:
        (draft / MODEL).write_bytes(os.urandom(SIZE))
        settled = (draft / MODEL).stat().st_ctime + 0.15
        while time.time() < settled:
            os.sched_yield()

    return publish(root, replace(FACTS, version=version), fill, sync=False).weights


def bytes_read(work: Callable[[], object]) -> int:
    def so_far() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    before = so_far()
    work()
    return so_far() - before


def test_the_publisher_and_the_first_check_read_the_files_and_further_checks_do_not(
    tmp_path: Path, own_marks: Path
) -> None:
    weights = put(tmp_path / "weights")
    directory, digest = weights.path, weights.manifest_sha256
    assert bytes_read(lambda: verify(directory, digest)) < SIZE / 2
    for mark in own_marks.rglob("*.json"):
        mark.unlink()
    assert bytes_read(lambda: verify(directory, digest)) > SIZE
    assert bytes_read(lambda: verify(directory, digest)) < SIZE / 2


@pytest.mark.parametrize("same_times", [False, True])
def test_an_altered_byte_is_found_although_the_file_was_checked(
    tmp_path: Path, own_marks: Path, same_times: bool
) -> None:
    weights = put(tmp_path / "weights")
    directory, digest = weights.path, weights.manifest_sha256
    before = (directory / MODEL).stat()
    with (directory / MODEL).open("r+b") as file:
        first = file.read(1)[0]
        file.seek(0)
        file.write(bytes([first ^ 1]))
    if same_times:
        os.utime(directory / MODEL, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(WeightsInvalid, match="has SHA-256"):
        verify(directory, digest)


def test_a_file_put_in_the_place_of_a_checked_one_is_hashed(
    tmp_path: Path, own_marks: Path
) -> None:
    weights = put(tmp_path / "weights")
    directory, digest = weights.path, weights.manifest_sha256
    other = directory / "other"
    other.write_bytes(bytes(SIZE))
    other.replace(directory / MODEL)
    with pytest.raises(WeightsInvalid, match=MODEL):
        verify(directory, digest)


def test_a_mark_holds_for_one_manifest_only(tmp_path: Path, own_marks: Path) -> None:
    weights = put(tmp_path / "weights")
    directory, digest = weights.path, weights.manifest_sha256
    text = (directory / MANIFEST).read_text()
    listed_hash = next(line for line in text.splitlines() if MODEL in line).split('"')[3]
    (directory / MANIFEST).write_text(text.replace(listed_hash, "0" * len(listed_hash)))
    with pytest.raises(WeightsInvalid, match="published was"):
        verify(directory, digest)
    with pytest.raises(WeightsInvalid, match=MODEL):
        verify(directory)


@pytest.mark.parametrize("damage", [b"", b"[]", b'{"boot": 1}', b"\xff"])
def test_a_mark_that_cannot_be_read_is_none(tmp_path: Path, own_marks: Path, damage: bytes) -> None:
    weights = put(tmp_path / "weights")
    directory, digest = weights.path, weights.manifest_sha256
    for mark in own_marks.rglob("*.json"):
        mark.write_bytes(damage)
    assert bytes_read(lambda: verify(directory, digest)) > SIZE


def test_marks_are_not_kept_where_others_may_write(tmp_path: Path, own_marks: Path) -> None:
    weights = put(tmp_path / "weights")
    directory, digest = weights.path, weights.manifest_sha256
    next(own_marks.iterdir()).chmod(0o777)
    assert HostMarks(directory).read(digest) == {}
    verify(directory, digest)
    assert stat.S_IMODE(next(own_marks.iterdir()).stat().st_mode) == 0o777


def test_marks_of_versions_that_are_gone_are_removed(tmp_path: Path, own_marks: Path) -> None:
    directory = put(tmp_path).path
    directory.rename(tmp_path / "elsewhere")
    put(tmp_path, version=2)
    assert len(list(own_marks.rglob("*.json"))) == 1


def test_a_publication_does_not_read_the_marks_of_other_runs(
    tmp_path: Path, own_marks: Path
) -> None:
    put(tmp_path / "another")
    for mark in own_marks.rglob("*.json"):
        mark.write_bytes(bytes(9 * SIZE))
    assert bytes_read(lambda: put(tmp_path / "weights")) < 9 * SIZE


def test_two_processes_check_one_after_the_other(tmp_path: Path, own_marks: Path) -> None:
    first, second, order = HostMarks(tmp_path), HostMarks(tmp_path), []
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with first.turn():
            entered.set()
            leave.wait(10)
            order.append("first")

    holder = threading.Thread(target=hold)
    holder.start()
    assert entered.wait(10)

    def follow() -> None:
        with second.turn():
            order.append("second")

    follower = threading.Thread(target=follow)
    follower.start()
    leave.set()
    holder.join(10)
    follower.join(10)
    assert order == ["first", "second"]
