"""Storage for published weights that several hosts reach: any that fsspec supports.

Below the URL each policy has `anchors/` with whole versions, `deltas/` with weight deltas, and
`tokenizers/`, by their hash. Each anchor or delta is a directory. Its name has its version and that
version's manifest hash, so that runs do not take each other's. A directory's manifest is written
last. A directory without one is not complete.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeVar
from urllib.parse import quote

from seamlessflow.infra.disk import is_full
from seamlessflow.infra.errors import SeamlessFlowError, SettingsRejected
from seamlessflow.infra.network.storages import storage_at
from seamlessflow.infra.weights.host_cache import policy_folder
from seamlessflow.infra.weights.manifest import MANIFEST, read_manifest
from seamlessflow.infra.weights.versions import WeightsGone

WeightsForm = Literal["anchors", "deltas"]

_SETTING = "SEAMLESSFLOW_WEIGHTS__URL"
_AT_ONCE = 4
_PATIENCE_S = 30.0
_AGAIN_S = 1.0
_HASH_DIGITS = 16
T = TypeVar("T")


class StorageUnavailable(SeamlessFlowError):
    """A weights storage that did not answer for half a minute."""

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        self.reason = reason
        super().__init__(f"the storage of weights {url} does not answer: {reason}")


class WeightsStorage:
    """Directories with a manifest below one URL. Safe to call from any thread."""

    def __init__(self, url: str, patience_s: float = _PATIENCE_S) -> None:
        """Raises `SettingsRejected` for a URL whose storage is not known or not installed."""
        self.url = url
        self._patience_s = patience_s
        try:
            # Others write there: what a listing said a moment ago may be wrong now.
            self._files, root = storage_at(url, use_listings_cache=False)
        except (ValueError, ImportError) as error:
            raise SettingsRejected(_SETTING, str(error)) from error
        self._root = root.rstrip("/")

    def has(self, place: str) -> bool:
        """Return whether a directory is there, complete. Raises `StorageUnavailable`."""
        try:
            # Not `exists`: in some file systems it is False for any error.
            self._asked(lambda: self._files.info(self._path(place, MANIFEST)))
        except FileNotFoundError:
            return False
        return True

    def send(self, directory: Path, place: str) -> None:
        """Copy a directory there, its manifest last. Raises `StorageUnavailable`."""
        self._asked(lambda: self._files.makedirs(self._path(place), exist_ok=True))
        names = [path.name for path in directory.iterdir() if path.name != MANIFEST]

        def put(name: str) -> None:
            source = str(directory / name)
            target = self._path(place, name)
            try:
                self._asked(lambda: self._files.put_file(source, target))
            except OSError as error:  # such as a full disk: another attempt would fail too
                raise StorageUnavailable(self.url, error.strerror or str(error)) from error

        self._each(put, names)
        put(MANIFEST)

    def fetch(self, place: str, directory: Path) -> None:
        """Copy a directory from there into an empty one, without comparing its files.

        Raises `WeightsGone` if it is not there, or no longer. Raises `StorageUnavailable`, an
        `OSError` if the disk is full, and `WeightsInvalid` for a manifest that cannot be read.
        """

        def get(name: str) -> None:
            source = self._path(place, name)
            target = str(directory / name)
            self._asked(lambda: self._files.get_file(source, target))

        try:
            get(MANIFEST)
            self._each(get, list(read_manifest(directory).files))
        except FileNotFoundError as error:
            raise WeightsGone(f"{self.url}/{place}") from error

    def versions(self, policy: str, form: WeightsForm) -> Mapping[int, Sequence[str]]:
        """Return where all a policy's versions are, oldest first."""
        folder = f"{policy_folder(policy)}/{form}"
        try:
            paths = self._asked(lambda: self._files.ls(self._path(folder), detail=False))
        except FileNotFoundError:
            return {}
        places: dict[int, list[str]] = {}
        for path in paths:
            name = path.rstrip("/").rpartition("/")[2]
            number = name.partition(".")[0].removeprefix("version-")
            if number.isdigit():
                places.setdefault(int(number), []).append(f"{folder}/{name}")
        return dict(sorted(places.items()))

    def remove(self, place: str) -> None:
        """Delete a directory, its manifest first; an incomplete one has no manifest.

        Raises `StorageUnavailable`.
        """
        with suppress(FileNotFoundError):
            self._asked(lambda: self._files.rm_file(self._path(place, MANIFEST)))
        with suppress(FileNotFoundError):
            self._asked(lambda: self._files.rm(self._path(place), recursive=True))

    def _each(self, work: Callable[[str], None], names: Sequence[str]) -> None:
        with ThreadPoolExecutor(_AT_ONCE, "weights") as threads:
            list(threads.map(work, names))

    def _asked(self, call: Callable[[], T]) -> T:
        """Return the call's result; try again while the storage does not answer."""
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                return call()
            except FileNotFoundError:
                raise
            # Not `OSError` alone: the libraries behind fsspec have their own errors. Those of
            # botocore, for example, are for a server that is away or for missing credentials.
            except Exception as error:
                if is_full(error):
                    raise
                if time.monotonic() > deadline:
                    reason = getattr(error, "strerror", None) or str(error) or repr(error)
                    raise StorageUnavailable(self.url, reason) from error
            time.sleep(_AGAIN_S)

    def _path(self, *parts: str) -> str:
        return "/".join((self._root, *parts))


def place_of(policy: str, form: WeightsForm, version: int, manifest_sha256: str) -> str:
    """Return the place of a version's anchor, or of the delta that leads to it."""
    name = f"version-{version:08d}.{manifest_sha256[:_HASH_DIGITS]}"
    return f"{policy_folder(policy)}/{form}/{name}"


def tokenizer_place(policy: str, tokenizer_hash: str) -> str:
    """Return the place of a policy's tokenizer."""
    return f"{policy_folder(policy)}/tokenizers/{quote(tokenizer_hash, safe='')}"
