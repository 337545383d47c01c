"""The receiving side: a rollout process takes a version from the training processes.

Each training process sends a share of the version's bytes into files in the host's cache. The cache
lies in memory if `weights.cache_dir` is on tmpfs. Meanwhile the engine goes on sampling. It loads
the directory once all files have been compared with the announced manifest.
"""

import logging
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.network.addresses import connect_to
from seamlessflow.infra.network.line import Line, LineLost
from seamlessflow.infra.network.store import store_of
from seamlessflow.infra.weights.from_trainer.questions import (
    ANSWER_S,
    TOKENIZER,
    WeightsAnswer,
    WeightsQuestion,
    pieces,
)
from seamlessflow.infra.weights.from_trainer.transfer import STILL, Transfer
from seamlessflow.infra.weights.host_cache import HostCache
from seamlessflow.infra.weights.versions import inside, version_directory

_CONNECT_S = 5.0
_ATTEMPTS = 2
"""The second is for a lost sender, or a lost process that received the same."""
_log = logging.getLogger(__name__)


class WeightsNotSent(SeamlessFlowError):
    """Weights that a policy's training processes did not send."""

    def __init__(self, policy: str, directory: str, reason: str) -> None:
        self.policy = policy
        self.directory = directory
        self.reason = reason
        super().__init__(f"no training process of policy {policy} sent {directory}: {reason}")


class WeightsReceiver:
    """One policy's versions, from its training processes into this host's cache."""

    def __init__(self, senders: Callable[[str], Sequence[str]], policy: str, cache: Path) -> None:
        """`senders` returns the addresses of a policy's training processes."""
        self._senders = senders
        self._policy = policy
        self._cache = HostCache(cache, policy)

    def version(self, version: int, manifest_sha256: str) -> Path:
        """Return a version's directory; first take the version if it is not there.

        Raises `WeightsNotSent`, `WeightsInvalid`, `DiskFull`; then nothing is left.
        """
        name = version_directory(self._cache.root, version).name

        def make() -> Path:
            with self._cache.draft() as draft:
                self._receive(name, manifest_sha256, draft)
                return self._cache.adopt(draft, manifest_sha256, f"{name} as it was sent")

        return self._cache.version(version, manifest_sha256, make)

    def tokenizer(self, tokenizer_hash: str) -> Path:
        """Return the tokenizer's directory; first take it if it is not there. Raises as `version`.

        The caller compares its hash.
        """
        return self._cache.tokenizer(
            tokenizer_hash, lambda draft: self._receive(TOKENIZER, "", draft)
        )

    def _receive(self, name: str, manifest_sha256: str, draft: Path) -> None:
        """Fill an empty directory. Raises `WeightsNotSent`."""
        reason = "none is known"
        for _ in range(_ATTEMPTS):
            lines, unreachable = _opened(self._senders(self._policy))
            if not lines:
                reason = unreachable or reason
                break
            began = time.monotonic()
            try:
                taken = _taken(lines, name, manifest_sha256, draft)
            except (LineLost, RuntimeError, TypeError, ValueError, SeamlessFlowError) as error:
                reason = str(error)
                _log.warning("%s did not come: %s", name, reason)
                continue
            finally:
                for line in lines:
                    line.close()
            took = time.monotonic() - began
            _log.info("%s: %d bytes came from %d senders in %.1f s", name, taken, len(lines), took)
            return
        raise WeightsNotSent(self._policy, name, reason)


def _opened(addresses: Sequence[str]) -> tuple[list[Line], str]:
    """Return lines to the addresses that can be reached, and why the last other one cannot."""
    lines = []
    reason = ""
    for address in addresses:
        try:
            lines.append(Line(connect_to(address, _CONNECT_S)))
        except (OSError, ValueError) as error:
            reason = f"{address}: {error}"
    return lines, reason


def _taken(lines: Sequence[Line], name: str, manifest_sha256: str, draft: Path) -> int:
    """Take a share over each line; return all bytes taken. Raises `LineLost`, `RuntimeError`."""

    def take(share: int) -> int:
        question = WeightsQuestion(
            directory=name, manifest_sha256=manifest_sha256, share=share, shares=len(lines)
        )
        lines[share].send(asdict(question))
        answer = WeightsAnswer(**lines[share].receive(ANSWER_S))
        if answer.reason:
            raise LineLost(answer.reason)
        files = {inside(draft, file): size for file, size in answer.sizes.items()}
        store = store_of(answer.store, STILL)
        taken = 0
        # Before room is made: a sender that a process has met notices at once if that one ends.
        with Transfer(store, answer.rank, answer.ranks, lines[share].here) as transfer:
            for path, size in files.items():
                _reserve(path, size)
            for piece in pieces(answer.sizes, share, len(lines)):
                transfer.receive(draft, piece)
                taken += piece.end - piece.start
        return taken

    with ThreadPoolExecutor(len(lines), "weights") as pool:
        return sum(pool.map(take, range(len(lines))))


def _reserve(path: Path, size: int) -> None:
    """Make a file with this size, if it is not there. Raises an `OSError` for a full disk.

    Otherwise a write to the mapping that finds no room would end the process.
    """
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
    try:
        if size:
            os.posix_fallocate(descriptor, 0, size)
    finally:
        os.close(descriptor)
