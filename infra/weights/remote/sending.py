"""Published weights on their way to a storage that other hosts reach. Called by the trainer.

Each version goes there as a delta against the previous version. Every `anchor_every` versions, and
if a delta would be no gain, an anchor is sent, which needs no other version. Adapters are all
anchors.
"""

import logging
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from seamlessflow.infra.weights.delta import write_delta
from seamlessflow.infra.weights.manifest import (
    MANIFEST,
    Manifest,
    read_manifest,
    sha256,
    write_manifest,
)
from seamlessflow.infra.weights.remote.storage import (
    WeightsForm,
    WeightsStorage,
    place_of,
    tokenizer_place,
)
from seamlessflow.infra.weights.settings import WeightsSection
from seamlessflow.infra.weights.versions import FEWEST_KEPT

_SMALL_ENOUGH = 0.5
"""Share of a version's bytes up to which its delta is sent."""
_TOKENIZER = "tokenizer"
_log = logging.getLogger(__name__)


class WeightsSender:
    """One policy's versions, sent one after the other."""

    def __init__(self, storage: WeightsStorage, policy: str, anchor_every: int, kept: int) -> None:
        """`kept`: count of newest versions that stay in the storage, at least `FEWEST_KEPT`."""
        self._storage = storage
        self._policy = policy
        self._anchor_every = anchor_every
        self._kept = max(kept, FEWEST_KEPT)
        self._last: Path | None = None
        self._since_anchor = 0

    @property
    def url(self) -> str:
        """The storage's URL."""
        return self._storage.url

    def newest(self) -> int:
        """Return the storage's highest version, or 0. Raises `StorageUnavailable`."""
        return max((*self._there("anchors"), *self._there("deltas")), default=0)

    def send(self, directory: Path) -> int:
        """Send a version and remove older ones; return the bytes sent, 0 if it is there already.

        Raises `StorageUnavailable`, and `WeightsInvalid` for files that are no safetensors.
        """
        facts = read_manifest(directory)
        digest = sha256(directory / MANIFEST)
        version = facts.version
        anchor, delta = (
            place_of(self._policy, form, version, digest) for form in ("anchors", "deltas")
        )
        if self._storage.has(anchor) or self._storage.has(delta):
            if self._last != directory:  # from an earlier life: its anchor's age is not known
                self._last = directory
                self._since_anchor = self._anchor_every
            return 0
        # An adapter is small, and all of it changes.
        sent = self._send_delta(directory, delta) if facts.kind == "full" else 0
        self._since_anchor += 1
        if not sent or self._since_anchor >= self._anchor_every:
            self._storage.send(directory, anchor)
            sent += _bytes(directory)
            self._since_anchor = 0
        self._last = directory
        self._remove_old()
        _log.info("version %d: %d bytes sent to %s", version, sent, self._storage.url)
        return sent

    def send_tokenizer(self, directory: Path, tokenizer_hash: str) -> None:
        """Send the policy's tokenizer files, once. Raises `StorageUnavailable`."""
        place = tokenizer_place(self._policy, tokenizer_hash)
        if self._storage.has(place):
            return
        facts = Manifest(
            policy=self._policy, version=0, optimizer_step=0, lineage=_TOKENIZER, dtype=""
        )
        with TemporaryDirectory(prefix=".version-", dir=directory.parent) as scratch:
            for path in directory.iterdir():
                shutil.copyfile(path, Path(scratch) / path.name)
            write_manifest(Path(scratch), facts)
            self._storage.send(Path(scratch), place)

    def _send_delta(self, directory: Path, place: str) -> int:
        """Send the changes since the previous version; return their bytes, 0 if none were sent."""
        if self._last is None or not self._last.is_dir():
            return 0
        # Named like a draft, so that the next publication removes it if a kill left it.
        with TemporaryDirectory(prefix=".version-", dir=directory.parent) as scratch:
            size = write_delta(self._last, directory, Path(scratch))
            if size > _SMALL_ENOUGH * _bytes(directory):
                return 0
            self._storage.send(Path(scratch), place)
        return size

    def _remove_old(self) -> None:
        """Remove what the newest versions do not need: all before an anchor they build on."""
        anchors = self._there("anchors")
        deltas = self._there("deltas")
        oldest = sorted({*anchors, *deltas})[-self._kept :][0]
        first = max((number for number in anchors if number <= oldest), default=0)
        for places in (anchors, deltas):
            for number, names in places.items():
                for place in names if number < first else ():
                    self._storage.remove(place)

    def _there(self, form: WeightsForm) -> Mapping[int, Sequence[str]]:
        return self._storage.versions(self._policy, form)


def weights_sender(settings: WeightsSection, policy: str, kept: int) -> WeightsSender | None:
    """Return the sender to the configured storage, or None. Raises `SettingsRejected`."""
    if settings.url is None:
        return None
    return WeightsSender(WeightsStorage(settings.url), policy, settings.anchor_every, kept)


def _bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())
