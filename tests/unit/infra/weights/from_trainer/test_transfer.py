"""A host takes versions from the training processes, each of which sends a share, byte for byte."""

import json
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from seamlessflow.infra.disk import DiskFull
from seamlessflow.infra.network.addresses import HOST
from seamlessflow.infra.weights.from_trainer.receiving import WeightsNotSent, WeightsReceiver
from seamlessflow.infra.weights.from_trainer.sending import WeightsService
from seamlessflow.infra.weights.manifest import WeightsInvalid, verify
from seamlessflow.infra.weights.versions import versions
from tests.builders.disks.file_limit import largest_file
from tests.builders.disks.weights import Versions, content, digest
from tests.waiting import until


class Hosts:
    """Training processes with one directory of weights, and hosts that do not see it."""

    def __init__(self, root: Path, services: int) -> None:
        self.root = root
        self.made = Versions(root / "weights")
        self.published = self.made.next()
        self.services = [WeightsService(self.made.root, HOST) for _ in range(services)]
        self.others: list[str] = []
        """Addresses where no training process is."""

    def senders(self, policy: str) -> Sequence[str]:
        assert policy == "p"
        return [*self.others, *(service.address for service in self.services)]

    def receiver(self, name: str) -> WeightsReceiver:
        return WeightsReceiver(self.senders, "p", self.root / name / "cache")

    def take(self, published: Path | None = None, name: str = "worker") -> Path:
        wanted = published or self.published
        version = int(wanted.name.removeprefix("version-"))
        return self.receiver(name).version(version, digest(wanted))

    def left(self, name: str = "worker") -> Sequence[str]:
        """Return what is in a host's cache."""
        return os.listdir(self.root / name / "cache" / "policy-p")

    def close(self) -> None:
        for service in self.services:
            service.close()


@pytest.fixture(params=[1, 3])
def hosts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Hosts]:
    made = Hosts(tmp_path, request.param)
    yield made
    made.close()


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Hosts]:
    made = Hosts(tmp_path, 2)
    yield made
    made.close()


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """Yield the address of a program that answers every question so, and hangs up."""
    with socket.create_server((HOST, 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1 << 16)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"{HOST}:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def test_each_version_comes_in_every_byte(hosts: Hosts) -> None:
    for published in (hosts.published, hosts.made.next()):
        taken = hosts.take(published)
        assert content(taken) == content(published)
        assert taken.is_relative_to(hosts.root / "worker")
        verify(taken, digest(published))


def test_several_hosts_that_ask_at_the_same_time_all_get_it(two: Hosts) -> None:
    with ThreadPoolExecutor(4) as pool:
        taken = list(pool.map(lambda name: two.take(name=name), "abcd"))
    assert all(content(directory) == content(two.published) for directory in taken)


def test_a_version_comes_once_to_a_host(two: Hosts) -> None:
    first = two.take()
    two.close()
    assert two.take() == first


def test_the_tokenizer_comes_the_same_way(two: Hosts) -> None:
    tokenizer = two.made.root / "tokenizer"
    tokenizer.mkdir()
    (tokenizer / "tokenizer.json").write_text("{}")
    (tokenizer / "empty.txt").touch()
    taken = two.receiver("worker").tokenizer("h/1")
    assert content(taken) == content(tokenizer)


def test_a_training_process_that_is_gone_leaves_its_share_to_the_others(two: Hosts) -> None:
    two.services[0].close()
    assert content(two.take()) == content(two.published)


@pytest.mark.parametrize("answer", [b"", b"nonsense\n", b"[]\n", b'{"store": "127.0.0.1:1"}\n'])
def test_another_program_at_the_address_is_an_error(two: Hosts, answer: bytes) -> None:
    with answering(answer) as address:
        two.others = [address]
        with pytest.raises(WeightsNotSent, match="no training process of policy p sent version-"):
            two.take()
    assert two.left() == []


def test_a_file_name_that_leads_elsewhere_is_refused(two: Hosts) -> None:
    answer = {"store": "127.0.0.1:1", "rank": 1, "ranks": 2, "sizes": {"../../evil": 4}}
    with answering(f"{json.dumps(answer)}\n".encode()) as address:
        two.others = [address]
        with pytest.raises(WeightsNotSent, match="leads out of"):
            two.take()
    assert not list(two.root.rglob("evil"))


def test_a_version_that_is_not_there_is_refused_with_its_name(two: Hosts) -> None:
    with pytest.raises(WeightsNotSent, match=r"version-00000007: is not there"):
        two.receiver("worker").version(7, "ab")
    assert two.left() == []


def test_another_run_s_version_of_that_number_is_not_sent(two: Hosts) -> None:
    with pytest.raises(WeightsNotSent, match=f"its manifest has SHA-256 {digest(two.published)}"):
        two.receiver("worker").version(0, "ab" * 32)
    assert versions(two.root / "worker/cache/policy-p") == {}


def test_a_byte_that_changed_after_publication_is_found_before_anything_is_loaded(
    two: Hosts,
) -> None:
    file = two.published / "model.safetensors"
    altered = bytearray(file.read_bytes())
    altered[-1] ^= 1
    file.write_bytes(altered)
    with pytest.raises(WeightsInvalid, match=r"model\.safetensors: has BLAKE3"):
        two.take()
    assert versions(two.root / "worker/cache/policy-p") == {}


def test_without_a_training_process_that_sends_it_is_an_error(tmp_path: Path) -> None:
    hosts = Hosts(tmp_path, 0)
    with pytest.raises(WeightsNotSent, match="none is known"):
        hosts.take()


def test_a_full_disk_is_named(two: Hosts) -> None:
    with largest_file(1000), pytest.raises(DiskFull, match="no space for"):
        two.take()
    assert two.left() == []


def test_a_host_without_room_leaves_at_once_what_others_wait_for(
    two: Hosts, caplog: pytest.LogCaptureFixture
) -> None:
    with largest_file(1000), pytest.raises(DiskFull):
        two.take()
    assert content(two.take(name="next")) == content(two.published)
    assert caplog.text.count("version-00000000 was not sent") == len(two.services)
    assert "timeout" not in caplog.text


def test_nonsense_and_those_that_hang_up_do_not_end_the_service(two: Hosts) -> None:
    host, _, port = two.services[0].address.rpartition(":")
    for said in (b"", b"GET / HTTP/1.1\r\n\r\n", b'{"directory": "../.."}\n', b"[1]\n"):
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(said)
    assert content(two.take()) == content(two.published)


@pytest.mark.parametrize("directory", ["..", "../weights/version-00000000", ".leases", "/etc"])
def test_no_other_directory_is_sent(two: Hosts, directory: str) -> None:
    host, _, port = two.services[0].address.rpartition(":")
    question = {"directory": directory, "manifest_sha256": "", "share": 0, "shares": 1}
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(f"{json.dumps(question)}\n".encode())
        with connection.makefile() as answers:
            answer = json.loads(answers.readline())
    assert "is not there" in answer["reason"]
    assert answer["sizes"] == {}


def test_the_lease_of_a_version_ends_with_its_transfer(two: Hosts) -> None:
    leases = two.made.root / ".leases"
    two.take()
    until(lambda: not list(leases.iterdir()), "no lease is left")
