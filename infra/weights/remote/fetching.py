"""Published weights from a storage, for a host that does not see the trainer's directory.

One worker makes a version in the host's cache, for all workers there. It uses the previous version
and a delta, else the newest anchor and the deltas after it. An engine loads it like any other
directory. Called by rollout processes.
"""

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path

from seamlessflow.infra.weights.delta import make_version, read_delta
from seamlessflow.infra.weights.host_cache import HostCache
from seamlessflow.infra.weights.manifest import MANIFEST, WeightsInvalid, verify
from seamlessflow.infra.weights.remote.storage import (
    WeightsForm,
    WeightsStorage,
    place_of,
    tokenizer_place,
)
from seamlessflow.infra.weights.settings import WeightsSection
from seamlessflow.infra.weights.versions import WeightsGone

_LONGEST_CHAIN = 10_000
_log = logging.getLogger(__name__)


class WeightsFetcher:
    """One policy's versions in this host's cache."""

    def __init__(self, storage: WeightsStorage, policy: str, cache: Path) -> None:
        self._storage = storage
        self._policy = policy
        self._cache = HostCache(cache, policy)

    def version(self, version: int, manifest_sha256: str) -> Path:
        """Return a version's directory, made if it is not there.

        Raises `WeightsGone`, `WeightsInvalid`, `StorageUnavailable`, `DiskFull`; then nothing is
        left.
        """

        def make() -> Path:
            try:
                return self._make(version, manifest_sha256, cached=True)
            except (WeightsInvalid, WeightsGone) as error:
                _log.warning("version %d is made of an anchor: %s", version, error)
                return self._make(version, manifest_sha256, cached=False)

        return self._cache.version(version, manifest_sha256, make)

    def tokenizer(self, tokenizer_hash: str) -> Path:
        """Return the tokenizer's directory, made if it is not there. Raises as `version`."""

        def fill(draft: Path) -> None:
            self._storage.fetch(tokenizer_place(self._policy, tokenizer_hash), draft)
            verify(draft)
            (draft / MANIFEST).unlink()

        return self._cache.tokenizer(tokenizer_hash, fill)

    def _make(self, version: int, manifest_sha256: str, cached: bool) -> Path:
        with self._cache.draft() as scratch:
            base, deltas = self._chain(version, manifest_sha256, cached, scratch)
            return make_version(self._cache.root, base, deltas) if deltas else base

    def _chain(
        self, version: int, manifest_sha256: str, cached: bool, scratch: Path
    ) -> tuple[Path, Sequence[Path]]:
        """Return a local directory and the deltas from it to a version, oldest first."""
        deltas: list[Path] = []
        for _ in range(_LONGEST_CHAIN):
            delta = self._part("deltas", version, manifest_sha256)
            anchor = self._part("anchors", version, manifest_sha256)
            here = scratch / f"{version}"
            if delta is not None and (cached or anchor is None):
                self._fetch(delta, here)
                facts = read_delta(here, version, manifest_sha256)
                base_version = facts.base_version or 0
                base_sha256 = facts.base_manifest_sha256 or ""
                base = self._cache.find(base_version, base_sha256) if cached else None
                if base is not None:
                    return base, [here, *deltas]
            if anchor is not None:
                return self._anchor(anchor, manifest_sha256, scratch / "anchor"), deltas
            if delta is None:
                raise WeightsGone(f"{self._storage.url} (version {version}, or one it builds on)")
            deltas.insert(0, here)
            version = base_version
            manifest_sha256 = base_sha256
        raise WeightsGone(f"{self._storage.url} (an anchor of version {version})")

    def _part(self, form: WeightsForm, version: int, manifest_sha256: str) -> str | None:
        place = place_of(self._policy, form, version, manifest_sha256)
        return place if self._storage.has(place) else None

    def _anchor(self, place: str, manifest_sha256: str, draft: Path) -> Path:
        """Fetch an anchor and return its directory. Raises `WeightsInvalid`."""
        self._fetch(place, draft)
        return self._cache.adopt(draft, manifest_sha256, f"{self._storage.url}/{place}")

    def _fetch(self, place: str, draft: Path) -> None:
        if draft.exists():
            shutil.rmtree(draft)
        draft.mkdir()
        self._storage.fetch(place, draft)


def weights_fetcher(settings: WeightsSection, policy: str, data_dir: Path) -> WeightsFetcher | None:
    """Return the fetcher from the configured storage, or None. Raises `SettingsRejected`."""
    if settings.url is None:
        return None
    return WeightsFetcher(WeightsStorage(settings.url), policy, settings.cache(data_dir))
