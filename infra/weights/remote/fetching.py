"""Published weights on a host that does not see the trainer's directory: taken from a storage.

A version is made in the cache of the host, by one worker for all: of the version before it and a
delta, else of the newest anchor and the deltas behind it. An engine loads it like any other
directory. Called by rollout processes.
"""

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from infra.disk.full import room_for
from infra.disk.whole_directory import remove
from infra.weights.delta import make_version, read_delta
from infra.weights.host_marks import HostMarks
from infra.weights.manifest import (
    MANIFEST,
    WeightsInvalid,
    adopt,
    read_manifest,
    sha256,
    verify,
)
from infra.weights.remote.storage import (
    Form,
    WeightsStorage,
    place_of,
    policy_folder,
    tokenizer_place,
)
from infra.weights.settings import WeightsSection
from infra.weights.versions import FEWEST_KEPT, WeightsGone, retain, version_directory

_DRAFT = ".version-"
_LONGEST_CHAIN = 10_000
_log = logging.getLogger(__name__)


class WeightsFetcher:
    """The versions of one policy in the cache of this host."""

    def __init__(self, storage: WeightsStorage, policy: str, cache: Path) -> None:
        self._storage = storage
        self._policy = policy
        self._root = cache.resolve() / policy_folder(policy)

    def version(self, version: int, manifest_sha256: str) -> Path:
        """Return the directory of a version, made if it is not there.

        Raises `WeightsGone`, `WeightsInvalid`, `StorageUnavailable`, `DiskFull`; nothing is left
        then.
        """
        self._root.mkdir(parents=True, exist_ok=True)
        with HostMarks(self._root).turn():
            if (known := self._cached(version, manifest_sha256)) is not None:
                return known
            try:
                found = self._make(version, manifest_sha256, cached=True)
            except (WeightsInvalid, WeightsGone) as error:
                _log.warning("version %d is made of an anchor: %s", version, error)
                found = self._make(version, manifest_sha256, cached=False)
            # By age: versions of an earlier run may have higher numbers.
            retain(self._root, FEWEST_KEPT, by_age=True)
        return found

    def tokenizer(self, tokenizer_hash: str) -> Path:
        """Return the directory of the tokenizer, made if it is not there. Raises as `version`."""
        place = tokenizer_place(self._policy, tokenizer_hash)
        target = self._root / f"tokenizer-{place.rpartition('/')[2]}"
        self._root.mkdir(parents=True, exist_ok=True)
        with HostMarks(self._root).turn(), TemporaryDirectory(prefix=_DRAFT, dir=self._root) as one:
            if not target.is_dir():
                draft = Path(one, "tokenizer")
                self._fetch(place, draft)
                verify(draft)
                (draft / MANIFEST).unlink()
                draft.rename(target)
        return target

    def _cached(self, version: int, manifest_sha256: str) -> Path | None:
        """Return the directory of a version that is here whole, or None; a broken one goes."""
        directory = version_directory(self._root, version)
        if not directory.is_dir():
            return None
        try:
            verify(directory, manifest_sha256)
        except WeightsInvalid as error:
            _log.warning("%s: it is made again", error)
            remove(directory)
            return None
        return directory

    def _make(self, version: int, manifest_sha256: str, cached: bool) -> Path:
        with TemporaryDirectory(prefix=_DRAFT, dir=self._root) as scratch:
            base, deltas = self._chain(version, manifest_sha256, cached, Path(scratch))
            return make_version(self._root, base, deltas) if deltas else base

    def _chain(
        self, version: int, manifest_sha256: str, cached: bool, scratch: Path
    ) -> tuple[Path, Sequence[Path]]:
        """Return a directory here and the deltas that lead from it to a version, oldest first."""
        deltas: list[Path] = []
        for _ in range(_LONGEST_CHAIN):
            delta = self._part("deltas", version, manifest_sha256)
            anchor = self._part("anchors", version, manifest_sha256)
            here = scratch / f"{version}"
            if delta is not None and (cached or anchor is None):
                self._fetch(delta, here)
                facts = read_delta(here, version, manifest_sha256)
                before = facts.base_version or 0, facts.base_manifest_sha256 or ""
                known = self._cached(*before) if cached else None
                if known is not None:
                    return known, [here, *deltas]
            if anchor is not None:
                return self._anchor(anchor, manifest_sha256, scratch / "anchor"), deltas
            if delta is None:
                raise WeightsGone(f"{self._storage.url} (version {version}, or one it builds on)")
            deltas.insert(0, here)
            version, manifest_sha256 = before
        raise WeightsGone(f"{self._storage.url} (an anchor of version {version})")

    def _part(self, form: Form, version: int, manifest_sha256: str) -> str | None:
        place = place_of(self._policy, form, version, manifest_sha256)
        return place if self._storage.has(place) else None

    def _anchor(self, place: str, manifest_sha256: str, draft: Path) -> Path:
        """Fetch an anchor and return its directory. Raises `WeightsInvalid`."""
        self._fetch(place, draft)
        found = sha256(draft / MANIFEST)
        if found != manifest_sha256:
            reason = f"has SHA-256 {found}, published was {manifest_sha256}"
            raise WeightsInvalid(f"{self._storage.url}/{place}", MANIFEST, reason)

        def fill(target: Path) -> None:
            for name in read_manifest(draft).files:
                (draft / name).rename(target / name)

        return adopt(self._root, draft / MANIFEST, fill)

    def _fetch(self, place: str, draft: Path) -> None:
        if draft.exists():
            shutil.rmtree(draft)
        draft.mkdir()
        with room_for(self._root / draft.name, draft):
            self._storage.fetch(place, draft)


def weights_fetcher(settings: WeightsSection, policy: str, data_dir: Path) -> WeightsFetcher | None:
    """Return the fetcher from the configured storage, or None. Raises `SettingsRejected`."""
    if settings.url is None:
        return None
    cache = settings.cache_dir or data_dir / "weights-cache"
    return WeightsFetcher(WeightsStorage(settings.url), policy, cache)
