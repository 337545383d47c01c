"""The receiving side: a rollout process takes a version from the training processes.

Each of them sends a share of its bytes into files in the host's cache. The cache lies in memory if
`weights.cache_dir` is on tmpfs. The engine samples on meanwhile. It loads the directory once all
files have been compared with the announced manifest.
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
"""The second is for the loss of a sender, or of another process that received the same."""
_log = logging.getLogger(__name__)


class WeightsNotSent(SeamlessFlowError):
    """Weights that the training processes of a policy did not send."""

    def __init__(self, policy: str, directory: str, reason: str) -> None:
        self.policy = policy
        self.directory = directory
        self.reason = reason
        super().__init__(f"no training process of policy {policy} sent {directory}: {reason}")


class WeightsReceiver:
    """The versions of one policy, from its training processes into this host's cache."""

    def __init__(self, senders: Callable[[str], Sequence[str]], policy: str, cache: Path) -> None:
        """`senders` returns the addresses of a policy's training processes."""
        self._senders = senders
        self._policy = policy
        self._cache = HostCache(cache, policy)

    def version(self, version: int, manifest_sha256: str) -> Path:
        """Return a version's directory, taken if it is not there.

        Raises `WeightsNotSent`, `WeightsInvalid`, `DiskFull`; nothing is left then.
        """
        name = version_directory(self._cache.root, version).name

        def make() -> Path:
            with self._cache.draft() as draft:
                self._receive(name, manifest_sha256, draft)
                return self._cache.adopt(draft, manifest_sha256, f"{name} as it was sent")

        return self._cache.version(version, manifest_sha256, make)

    def tokenizer(self, tokenizer_hash: str) -> Path:
        """Return the tokenizer's directory, taken if it is not there. Raises as `version`.

        Its hash is for the caller to compare.
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
    """Return lines to those that can be reached, and the reason for the last that cannot."""
    lines = []
    reason = ""
    for address in addresses:
        try:
            lines.append(Line(connect_to(address, _CONNECT_S)))
        except (OSError, ValueError) as error:
            reason = f"{address}: {error}"
    return lines, reason


def _taken(lines: Sequence[Line], name: str, manifest_sha256: str, draft: Path) -> int:
    """Take a share over each line; return the bytes of all. Raises `LineLost`, `RuntimeError`."""

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
        # Before there is room for it: a sender notices at once the end of one that it has met.
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
    """Make a file of this size, if it is not there. Raises an `OSError` of a full disk.

    A write to a mapping that finds no room would end the process.
    """
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
    try:
        if size:
            os.posix_fallocate(descriptor, 0, size)
    finally:
        os.close(descriptor)
