"""Weights on disk appear whole, are checked file by file, and stay while somebody loads them."""

import hashlib
import json
import os
import pickle
import re
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from seamlessflow.infra.errors import ExitStatus
from seamlessflow.infra.weights.manifest import (
    MANIFEST,
    Manifest,
    WeightsInvalid,
    other_file,
    present,
    publish,
    read_manifest,
    verify,
)
from seamlessflow.infra.weights.tensors import tensors_hash
from seamlessflow.infra.weights.versions import (
    LEASE_MAX_AGE_S,
    PathOutside,
    keep,
    lease,
    retain,
    versions,
)


def facts(version: int = 4) -> Manifest:
    return Manifest(
        policy="tiny", version=version, optimizer_step=version, lineage="a", dtype="float32"
    )


def fill(directory: Path) -> None:
    (directory / "model.safetensors").write_bytes(b"tensors")
    (directory / "config.json").write_text("{}")


def put(root: Path, version: int = 4) -> Path:
    return publish(root, facts(version), fill, sync=False).weights.path


def test_what_was_published_verifies_and_says_what_it_is(tmp_path: Path) -> None:
    weights = publish(tmp_path, facts(), fill).weights
    directory, digest = weights.path, weights.manifest_sha256
    manifest = verify(directory, digest)
    assert (manifest.policy, manifest.version, manifest.kind) == ("tiny", 4, "full")
    assert set(manifest.files) == {"model.safetensors", "config.json"}


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", MANIFEST])
def test_a_changed_file_is_named(tmp_path: Path, file: str) -> None:
    weights = publish(tmp_path, facts(), fill, sync=False).weights
    directory, digest = weights.path, weights.manifest_sha256
    (directory / file).write_bytes((directory / file).read_bytes() + b" ")
    with pytest.raises(WeightsInvalid) as raised:
        verify(directory, digest)
    assert raised.value.file == file


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    directory = put(tmp_path)
    (directory / "config.json").unlink()
    with pytest.raises(WeightsInvalid, match=r"config\.json"):
        verify(directory)


def test_tensors_that_the_manifest_does_not_name_are_refused(tmp_path: Path) -> None:
    directory = put(tmp_path)
    (directory / "extra.safetensors").touch()
    with pytest.raises(WeightsInvalid, match="not in the manifest"):
        verify(directory)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"policy": "p"}', b"\xff"])
def test_a_broken_manifest_is_a_typed_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / MANIFEST).write_bytes(content)
    with pytest.raises(WeightsInvalid) as raised:
        read_manifest(tmp_path)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"kind": "sparse"}, "unknown kind 'sparse'"),
        ({"hash": "md6"}, "unknown hash 'md6'"),
        ({"colour": 1}, "unknown fields colour"),
    ],
)
def test_a_manifest_of_a_newer_release_lasts_and_other_damage_may_pass(
    tmp_path: Path, changes: dict[str, object], what: str
) -> None:
    file = put(tmp_path) / MANIFEST
    whole = json.loads(file.read_bytes())
    file.write_text(json.dumps(whole | changes))
    with pytest.raises(WeightsInvalid, match=f"{what}: a newer release wrote it") as newer:
        read_manifest(file.parent)
    assert newer.value.process_status(ready=True) is ExitStatus.LASTING
    file.write_bytes(file.read_bytes()[:20])  # of a file system that shows a part of it yet
    with pytest.raises(WeightsInvalid) as partly:
        read_manifest(file.parent)
    assert partly.value.process_status(ready=True) is ExitStatus.PASSING


@pytest.mark.parametrize("name", ["../config.json", "/etc/hostname", "deeper/file", "..", "."])
def test_a_manifest_may_not_point_outside_its_directory(tmp_path: Path, name: str) -> None:
    text = (put(tmp_path) / MANIFEST).read_text().replace("config.json", name)
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(WeightsInvalid, match=re.escape(f"{name!r} leads out of {tmp_path}")):
        read_manifest(tmp_path)


def test_a_file_of_the_manifest_may_not_be_a_link_to_elsewhere(tmp_path: Path) -> None:
    directory, elsewhere = put(tmp_path), tmp_path / "elsewhere.json"
    (directory / "config.json").rename(elsewhere)
    (directory / "config.json").symlink_to(elsewhere)
    with pytest.raises(WeightsInvalid, match=r"'config\.json' leads out of"):
        verify(directory)


def test_a_version_that_is_a_link_to_elsewhere_is_neither_used_nor_deleted(tmp_path: Path) -> None:
    elsewhere, root = put(tmp_path / "elsewhere"), tmp_path / "root"
    for version in range(5, 9):
        put(root, version)
    (root / elsewhere.name).symlink_to(elsewhere)
    for use in (versions, lambda root: retain(root, 3)):
        with pytest.raises(PathOutside, match=elsewhere.name):
            use(root)
    verify(elsewhere)


def test_a_publication_that_fails_leaves_no_version_behind(tmp_path: Path) -> None:
    def fail(directory: Path) -> None:
        (directory / "model.safetensors").touch()
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        publish(tmp_path, facts(), fail, sync=False)
    assert versions(tmp_path) == {}


def test_a_version_published_again_is_replaced(tmp_path: Path) -> None:
    put(tmp_path)
    put(tmp_path)
    verify(versions(tmp_path)[4])


def test_only_the_newest_versions_and_no_drafts_stay(tmp_path: Path) -> None:
    for version in range(6):
        put(tmp_path, version)
    (tmp_path / ".version-00000009.dead").mkdir()
    assert retain(tmp_path, 4) == [0, 1]
    assert list(versions(tmp_path)) == [2, 3, 4, 5]
    assert not list(tmp_path.glob(".version-*"))


def test_a_version_that_is_being_loaded_is_not_deleted(tmp_path: Path) -> None:
    for version in range(5):
        put(tmp_path, version)
    with lease(versions(tmp_path)[0]):
        assert retain(tmp_path, 3) == [1]
    assert retain(tmp_path, 3) == [0]


def test_a_past_version_that_is_shown_stays_for_good(tmp_path: Path) -> None:
    for version in range(5):
        put(tmp_path, version)
    keep(versions(tmp_path)[0])
    (mark,) = (tmp_path / ".leases").iterdir()
    long_ago = time.time() - LEASE_MAX_AGE_S - 1
    os.utime(mark, (long_ago, long_ago))
    assert retain(tmp_path, 3) == [1]
    assert retain(tmp_path, 3) == []
    assert list(versions(tmp_path)) == [0, 2, 3, 4]


def test_the_first_file_that_differs_from_a_version_is_named(tmp_path: Path) -> None:
    assert present(tmp_path) is None
    put(tmp_path, 0)
    published = present(tmp_path)
    assert published is not None
    assert published == publish(tmp_path, facts(0), fill, sync=False).weights
    model = tmp_path / "model"
    model.mkdir()
    fill(model)
    assert other_file(model, published.path) == ""
    (model / "more.json").write_text("{}")
    assert other_file(model, published.path) == "more.json"
    (model / "more.json").unlink()
    first = sorted(model.iterdir())[0]
    first.unlink()
    assert other_file(model, published.path) == first.name


def test_the_lease_of_a_dead_reader_ends(tmp_path: Path) -> None:
    for version in range(4):
        put(tmp_path, version)
    with lease(versions(tmp_path)[0]):
        long_ago = time.time() - LEASE_MAX_AGE_S - 1
        for mark in (tmp_path / ".leases").iterdir():
            os.utime(mark, (long_ago, long_ago))
        assert retain(tmp_path, 3) == [0]
        assert not list((tmp_path / ".leases").iterdir())


def test_only_versions_that_are_there_are_leased(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    for directory in (tmp_path / "version-00000007", tmp_path / "model"):
        with lease(directory):
            assert not (tmp_path / ".leases").exists()


def test_a_reader_that_cannot_make_a_mark_reads_without_a_lease(tmp_path: Path) -> None:
    put(tmp_path, 7)
    (tmp_path / ".leases").touch()
    with lease(versions(tmp_path)[7]):
        assert retain(tmp_path, 3) == []


def test_manifests_of_earlier_releases_are_read_and_written_as_they_were(tmp_path: Path) -> None:
    weights = publish(tmp_path, facts(), fill, sync=False).weights
    directory, digest = weights.path, weights.manifest_sha256
    fields = json.loads((directory / MANIFEST).read_bytes())
    assert "hash" not in fields
    assert fields["files"]["config.json"] == hashlib.sha256(b"{}").hexdigest()
    verify(directory, digest)


def test_a_manifest_names_the_hash_of_its_files(tmp_path: Path) -> None:
    weights = publish(tmp_path, replace(facts(), hash="blake3"), fill, sync=False).weights
    directory, digest = weights.path, weights.manifest_sha256
    assert read_manifest(directory).hash == "blake3"
    verify(directory, digest)
    (directory / "config.json").write_text("[]")
    with pytest.raises(WeightsInvalid, match=r"config\.json: has BLAKE3"):
        verify(directory, digest)


def test_a_hash_of_a_later_release_is_refused_by_name(tmp_path: Path) -> None:
    directory = publish(tmp_path, replace(facts(), hash="blake3"), fill, sync=False).weights.path
    text = (directory / MANIFEST).read_text().replace("blake3", "blake9")
    (directory / MANIFEST).write_text(text)
    with pytest.raises(WeightsInvalid, match="unknown hash 'blake9'"):
        verify(directory)


def test_publishing_finds_the_hash_of_all_tensors_beside_those_of_files(tmp_path: Path) -> None:
    def fill_two(draft: Path) -> None:
        save_file({"a": np.ones(3, np.float32)}, draft / "one.safetensors")
        save_file({"b": np.ones(4, np.float32)}, draft / "two.safetensors")

    made = publish(tmp_path, facts(), fill_two, sync=False)
    assert made.tensors_hash == tensors_hash(made.weights.path)
