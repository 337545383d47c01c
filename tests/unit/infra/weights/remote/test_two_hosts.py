"""A host without the trainer's directory gets the same versions from a storage, by what changed."""

import shutil
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from seamlessflow.infra.disk import DiskFull
from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.weights.manifest import WeightsInvalid, verify
from seamlessflow.infra.weights.remote.fetching import WeightsFetcher
from seamlessflow.infra.weights.remote.sending import WeightsSender
from seamlessflow.infra.weights.remote.storage import StorageUnavailable, WeightsStorage, place_of
from seamlessflow.infra.weights.versions import WeightsGone, lease, versions
from tests.builders.disks.file_limit import largest_file
from tests.builders.disks.weights import Versions, content, digest

EVERY = 4


class Hosts:
    """A trainer's host and a worker's, which share a storage and nothing else."""

    def __init__(self, root: Path, url: str | None = None, kept: int = 4) -> None:
        self.root = root
        self.store = root / "store"
        self.url = url or self.store.as_uri()
        self.made = Versions(root / "trainer" / "weights")
        self.sender = WeightsSender(WeightsStorage(self.url, 0), "p", EVERY, kept)
        self.fetcher = self.worker("worker")

    def worker(self, name: str) -> WeightsFetcher:
        return WeightsFetcher(WeightsStorage(self.url, 0), "p", self.root / name / "cache")

    def publish(self) -> Path:
        directory = self.made.next()
        self.sender.send(directory)
        return directory

    def take(self, published: Path, fetcher: WeightsFetcher | None = None) -> Path:
        version = int(published.name.removeprefix("version-"))
        return (fetcher or self.fetcher).version(version, digest(published))

    def place(self, form: str, version: int) -> Path:
        (path,) = (self.store / "policy-p" / form).glob(f"version-{version:08d}.*")
        return path


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    return Hosts(tmp_path)


@pytest.fixture(params=["file", "memory"])
def over(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Hosts]:
    url = None if request.param == "file" else f"memory://{uuid.uuid4().hex}"
    yield Hosts(tmp_path, url)
    if url is not None:
        with suppress(FileNotFoundError):
            fsspec.filesystem("memory").rm(url, recursive=True)


def test_each_version_arrives_in_every_bit(over: Hosts) -> None:
    for _ in range(2 * EVERY + 1):
        published = over.publish()
        taken = over.take(published)
        assert content(taken) == content(published)
        assert taken.is_relative_to(over.root / "worker")
        verify(taken, digest(published))


def test_a_version_is_sent_as_what_changed_and_now_and_then_whole(hosts: Hosts) -> None:
    sizes = []
    for _ in range(EVERY + 1):
        directory = hosts.made.next()
        sizes.append(hosts.sender.send(directory))
        assert hosts.sender.send(directory) == 0
    whole = sum(path.stat().st_size for path in directory.iterdir())
    assert sizes[0] == whole
    assert all(size < 0.1 * whole for size in sizes[1:EVERY])
    assert sizes[EVERY] > whole
    assert [path.name[:16] for path in sorted((hosts.store / "policy-p/anchors").iterdir())] == [
        "version-00000000",
        "version-00000004",
    ]


def test_a_late_joiner_takes_the_newest_anchor_and_the_deltas_behind_it(hosts: Hosts) -> None:
    for _ in range(EVERY + 3):
        published = hosts.publish()
    assert content(hosts.take(published)) == content(published)
    assert list(versions(hosts.root / "worker/cache/policy-p")) == [EVERY, EVERY + 2]


def test_a_version_whose_elements_all_changed_is_sent_whole(tmp_path: Path) -> None:
    hosts = Hosts(tmp_path)
    hosts.made.share = 0.9
    for _ in range(3):
        published = hosts.publish()
    assert not (hosts.store / "policy-p/deltas").exists()
    assert content(hosts.take(published)) == content(published)


def test_adapters_are_sent_whole(hosts: Hosts) -> None:
    hosts.made.kind = {"kind": "adapter", "base_model": "/models/base", "base_hash": "ab"}
    for _ in range(3):
        published = hosts.publish()
        assert content(hosts.take(published)) == content(published)
    assert not (hosts.store / "policy-p/deltas").exists()


def test_a_version_is_made_once_on_a_host(hosts: Hosts) -> None:
    published = hosts.publish()
    first = hosts.take(published)
    shutil.rmtree(hosts.store)
    assert hosts.take(published, hosts.worker("worker")) == first


def test_a_broken_version_in_the_cache_is_made_again(hosts: Hosts) -> None:
    hosts.take(hosts.publish())
    published = hosts.publish()
    (base,) = versions(hosts.root / "worker/cache/policy-p").values()
    (base / "model.safetensors").write_bytes(b"broken")
    assert content(hosts.take(published)) == content(published)


@pytest.mark.parametrize("form", ["anchors", "deltas"])
@pytest.mark.parametrize("damage", ["cut", "altered"])
def test_a_file_damaged_on_its_way_gives_no_version(hosts: Hosts, form: str, damage: str) -> None:
    published = [hosts.publish(), hosts.publish()]
    number = 0 if form == "anchors" else 1
    for path in hosts.place(form, number).glob("model.safetensors*"):
        whole = path.read_bytes()
        path.write_bytes(whole[:-3] if damage == "cut" else whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(WeightsInvalid, match=r"model\.safetensors"):
        hosts.take(published[number])
    assert list(versions(hosts.root / "worker/cache/policy-p")) in ([], [0])
    assert not list((hosts.root / "worker/cache/policy-p").glob(".version-*"))


def test_a_gap_in_the_deltas_is_a_clear_error_and_the_next_anchor_ends_it(hosts: Hosts) -> None:
    for _ in range(3):
        published = hosts.publish()
    shutil.rmtree(hosts.place("deltas", 1))
    with pytest.raises(WeightsGone, match="version 1, or one it builds on"):
        hosts.take(published)
    while published.name != f"version-{EVERY:08d}":
        published = hosts.publish()
    assert content(hosts.take(published)) == content(published)


def test_a_delta_against_another_version_is_not_applied(hosts: Hosts) -> None:
    hosts.take(hosts.publish())
    published, other = hosts.publish(), Hosts(hosts.root / "other")
    other.made.values[:] = 7
    other.publish()
    other.publish()
    place = hosts.place("deltas", 1)
    shutil.rmtree(place)
    shutil.copytree(other.place("deltas", 1), place)
    with pytest.raises(WeightsInvalid, match="does not lead to version 1 as it was published"):
        hosts.take(published)


def test_a_version_deleted_before_it_was_fetched_is_gone(hosts: Hosts) -> None:
    published = hosts.publish()
    for _ in range(3 * EVERY):
        hosts.publish()
    assert not list(hosts.store.glob("policy-p/*/version-00000000.*"))
    with pytest.raises(WeightsGone):
        hosts.take(published)


def test_what_a_killed_trainer_left_half_sent_is_removed_too(over: Hosts) -> None:
    half = over.publish()
    storage = WeightsStorage(over.url, 0)
    place = place_of("p", "anchors", 0, digest(half))
    files, root = fsspec.url_to_fs(f"{over.url}/{place}")
    files.rm_file(f"{root}/manifest.json")
    for _ in range(3 * EVERY):
        over.publish()
    assert 0 not in storage.versions("p", "anchors")


def test_the_newest_versions_can_be_had_after_each_removal(tmp_path: Path) -> None:
    hosts, published = Hosts(tmp_path, kept=3), []
    for number in range(3 * EVERY):
        published.append(hosts.publish())
        for directory in published[-3:]:
            if directory.is_dir():
                joiner = hosts.worker(f"joiner-{number}-{directory.name}")
                assert content(hosts.take(directory, joiner)) == content(directory)


def test_a_version_that_is_loaded_stays_in_the_cache(hosts: Hosts) -> None:
    first = hosts.take(hosts.publish())
    with lease(first):
        for _ in range(5):
            hosts.take(hosts.publish())
        assert first.is_dir()
    hosts.take(hosts.publish())
    assert not first.exists()
    assert len(versions(first.parent)) == 3


def test_versions_of_an_earlier_run_do_not_push_out_those_of_this_one(hosts: Hosts) -> None:
    for _ in range(6):
        hosts.take(hosts.publish())
    later = Hosts(hosts.root / "later")
    later.made.values[:] = 3
    published = later.publish()
    fetcher = WeightsFetcher(WeightsStorage(later.url, 0), "p", hosts.root / "worker/cache")
    assert content(later.take(published, fetcher)) == content(published)


def test_a_full_disk_at_the_worker_is_told_and_leaves_nothing(hosts: Hosts) -> None:
    published = hosts.publish()
    with largest_file(20_000), pytest.raises(DiskFull):
        hosts.take(published)
    assert not list((hosts.root / "worker/cache/policy-p").glob("*version*"))
    assert content(hosts.take(published)) == content(published)


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_trainer_that_starts_again_sends_an_anchor(hosts: Hosts, goes_on: bool) -> None:
    hosts.publish()
    current = hosts.publish()
    hosts.sender = WeightsSender(WeightsStorage(hosts.url), "p", EVERY, 4)
    if goes_on:
        assert hosts.sender.send(current) == 0
    published = hosts.publish()
    assert hosts.place("anchors", 2).is_dir()
    assert content(hosts.take(published)) == content(published)


def test_the_tokenizer_comes_along(hosts: Hosts) -> None:
    tokenizer = hosts.root / "trainer/weights/tokenizer"
    tokenizer.mkdir(parents=True)
    (tokenizer / "tokenizer.json").write_text("{}")
    hosts.sender.send_tokenizer(tokenizer, "a hash/of it")
    taken = hosts.fetcher.tokenizer("a hash/of it")
    assert content(taken) == {"tokenizer.json": b"{}"}
    shutil.rmtree(hosts.store)
    assert hosts.worker("worker").tokenizer("a hash/of it") == taken


def test_a_storage_that_does_not_answer_is_told(hosts: Hosts) -> None:
    published = hosts.publish()
    hosts.store.rename(hosts.root / "moved")
    hosts.store.write_text("no directory")
    with pytest.raises(StorageUnavailable, match="Not a directory"):
        hosts.sender.send(hosts.made.next())
    hosts.store.unlink()
    with pytest.raises(WeightsGone):
        hosts.take(published)


class Away(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A storage whose library has errors of its own, as those of S3, Google and Azure."""

    protocol = "away"

    def info(self, path: str, **_: object) -> None:
        raise LookupError(f"no endpoint for {path}")

    ls = info


def test_a_storage_whose_library_has_errors_of_its_own_is_told_too(tmp_path: Path) -> None:
    fsspec.register_implementation("away", Away, clobber=True)
    hosts = Hosts(tmp_path, "away://bucket/run")
    with pytest.raises(StorageUnavailable, match="does not answer: no endpoint"):
        hosts.publish()
    with pytest.raises(StorageUnavailable, match="endpoint"):
        hosts.take(hosts.made.next())


def test_a_url_of_no_known_storage_is_refused() -> None:
    with pytest.raises(SettingsRejected, match="SEAMLESSFLOW_WEIGHTS__URL"):
        WeightsStorage("nonsense://bucket")
