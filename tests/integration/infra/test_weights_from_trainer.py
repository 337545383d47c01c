"""A transfer of weights whose one end is killed costs neither the version nor other hosts."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from seamlessflow.infra.network.addresses import HOST
from seamlessflow.infra.weights.from_trainer.receiving import WeightsReceiver
from seamlessflow.infra.weights.from_trainer.sending import WeightsService
from seamlessflow.infra.weights.manifest import MANIFEST, publish, sha256, verify
from seamlessflow.infra.weights.versions import PublishedWeights
from tests.builders.disks.weights import facts
from tests.waiting import until

pytestmark = pytest.mark.slow

BYTES = 384 << 20
SENDS = """
import sys, time
from pathlib import Path
from seamlessflow.infra.weights.from_trainer.sending import WeightsService
print(WeightsService(Path(sys.argv[1]), sys.argv[2]).address, flush=True)
time.sleep(600)
"""
RECEIVES = """
import sys
from pathlib import Path
from seamlessflow.infra.weights.from_trainer.receiving import WeightsReceiver
receiver = WeightsReceiver(lambda policy: sys.argv[1:2], "p", Path(sys.argv[2]))
receiver.version(0, sys.argv[3])
"""


@pytest.fixture
def published(tmp_path: Path) -> PublishedWeights:
    """A large version."""

    def fill(draft: Path) -> None:
        with (draft / "weights.bin").open("wb") as file:
            file.truncate(BYTES)
            file.write(os.urandom(64))

    return publish(tmp_path / "weights", facts(0), fill, sync=False).weights


@contextmanager
def process(program: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


def stop_in_the_middle(child: subprocess.Popen[str], cache: Path) -> None:
    """Stop a process as soon as the files of a transfer are in the cache."""
    policy = cache / "policy-p"

    def begun() -> bool:
        return policy.is_dir() and any(
            (each / "draft" / "weights.bin").exists() for each in policy.glob(".version-*")
        )

    until(begun, "the begin of the transfer")
    child.send_signal(signal.SIGSTOP)


def test_a_sender_that_is_killed_leaves_its_share_to_another(
    tmp_path: Path, published: PublishedWeights, caplog: pytest.LogCaptureFixture
) -> None:
    directory, manifest_sha256 = published.path, published.manifest_sha256
    cache, other = tmp_path / "cache", WeightsService(directory.parent, HOST)
    with process(SENDS, directory.parent, HOST) as child, caplog.at_level(logging.WARNING):
        assert child.stdout is not None
        addresses = [child.stdout.readline().strip(), other.address]
        receiver = WeightsReceiver(lambda policy: addresses, "p", cache)
        with ThreadPoolExecutor(1) as pool:
            taken = pool.submit(receiver.version, 0, manifest_sha256)
            stop_in_the_middle(child, cache)
            assert not taken.done()
            child.kill()
            assert verify(taken.result(90), manifest_sha256).version == 0
    other.close()
    assert "version-00000000 did not come" in caplog.text


def test_a_host_that_is_killed_does_not_hold_the_next_one_up(
    tmp_path: Path, published: PublishedWeights, caplog: pytest.LogCaptureFixture
) -> None:
    directory, manifest_sha256 = published.path, published.manifest_sha256
    service, cache = WeightsService(directory.parent, HOST), tmp_path / "killed"
    with caplog.at_level(logging.WARNING):
        with process(RECEIVES, service.address, cache, manifest_sha256) as child:
            stop_in_the_middle(child, cache)
            child.kill()
        receiver = WeightsReceiver(lambda policy: [service.address], "p", tmp_path / "next")
        taken = receiver.version(0, manifest_sha256)
    service.close()
    assert sha256(taken / MANIFEST) == manifest_sha256
    assert "version-00000000 was not sent" in caplog.text
