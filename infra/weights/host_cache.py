"""A host's cache for one policy's published versions, which its workers took from elsewhere.

One worker makes a version for the whole host; an engine loads it like any other directory.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

from seamlessflow.infra.disk import remove_directory, room_for
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.weights.hashing import HostMarks
from seamlessflow.infra.weights.manifest import (
    MANIFEST,
    WeightsInvalid,
    adopt,
    read_manifest,
    sha256,
    verify,
)
from seamlessflow.infra.weights.versions import FEWEST_KEPT, retain, version_directory

_DRAFT = ".version-"
_log = logging.getLogger(__name__)


class CacheUnusable(SeamlessFlowError):
    """A cache that cannot be read or written, such as one that was deleted meanwhile."""

    def __init__(self, directory: str, reason: str) -> None:
        self.directory = directory
        self.reason = reason
        super().__init__(f"the cache of weights {directory} cannot be used: {reason}")


class HostCache:
    """One policy's versions and tokenizers. All methods that make one raise `CacheUnusable`."""

    def __init__(self, cache: Path, policy: str) -> None:
        self.root = cache.resolve() / policy_folder(policy)

    def version(self, version: int, manifest_sha256: str, make: Callable[[], Path]) -> Path:
        """Return a version's directory, made if it is not there. Raises what `make` raises."""
        with self._turn():
            directory = self.find(version, manifest_sha256) or make()
            # By age: versions of an earlier run may have higher numbers.
            retain(self.root, FEWEST_KEPT, by_age=True)
        return directory

    def find(self, version: int, manifest_sha256: str) -> Path | None:
        """Return a version's directory if it is whole, or None; a broken one is removed."""
        directory = version_directory(self.root, version)
        if not directory.is_dir():
            return None
        try:
            verify(directory, manifest_sha256)
        except WeightsInvalid as error:
            _log.warning("%s: it is made again", error)
            remove_directory(directory)
            return None
        return directory

    def tokenizer(self, tokenizer_hash: str, fill: Callable[[Path], None]) -> Path:
        """Return a tokenizer's directory; if it is not there, `fill` fills an empty one."""
        target = self.root / f"tokenizer-{quote(tokenizer_hash, safe='')}"
        with self._turn(), self.draft() as draft:
            if not target.is_dir():
                fill(draft)
                draft.rename(target)
        return target

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Let only one process on this host at a time fill the cache; make it if missing."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with HostMarks(self.root).turn():
                yield
        except OSError as error:
            raise CacheUnusable(str(self.root), str(error)) from error

    @contextmanager
    def draft(self) -> Iterator[Path]:
        """Yield an empty directory, which is removed at the end. Raises `DiskFull`."""
        with TemporaryDirectory(prefix=_DRAFT, dir=self.root) as scratch:
            draft = Path(scratch, "draft")
            draft.mkdir()
            with room_for(self.root / draft.name, draft):
                yield draft

    def adopt(self, draft: Path, manifest_sha256: str, source: str) -> Path:
        """Make a version by moving the files out of `draft`; return its directory.

        Raises `WeightsInvalid`, which names `source`, if they are not what was published.
        """
        digest = sha256(draft / MANIFEST) if (draft / MANIFEST).exists() else "none"
        if digest != manifest_sha256:
            reason = f"has SHA-256 {digest}, published was {manifest_sha256}"
            raise WeightsInvalid(source, MANIFEST, reason)

        def fill(target: Path) -> None:
            for name in read_manifest(draft).files:
                (draft / name).rename(target / name)

        return adopt(self.root, draft / MANIFEST, fill)


def policy_folder(policy: str) -> str:
    """Return the name of a policy's folder, in the cache and in a storage."""
    return f"policy-{quote(policy, safe='')}"
