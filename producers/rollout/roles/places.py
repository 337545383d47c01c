"""Places on this host for published weights and the tokenizer.

If this host sees the trainer's own directory, that is the place. Otherwise (or always, if so
configured) it is a directory in the host's cache. Its files come from the trainer's memory or the
configured storage. Called by the device thread, before a move changes anything.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.rendering.settings import RendererSettings, rendering_hash
from seamlessflow.infra.weights.from_trainer.chosen import Addresses, weights_receiver
from seamlessflow.infra.weights.manifest import MANIFEST, WeightsInvalid, sha256
from seamlessflow.infra.weights.remote.fetching import weights_fetcher
from seamlessflow.infra.weights.settings import WeightsSection
from seamlessflow.infra.weights.versions import PublishedWeights
from seamlessflow.schemas.records import PolicyWeights

_log = logging.getLogger(__name__)


class WeightsPlaces(Protocol):
    """This host's directories for published weights."""

    def weights(self, weights: PublishedWeights, policy: str) -> PublishedWeights:
        """Return the weights with a directory on this host. May take long.

        Raises `SeamlessFlowError` if they cannot be had; nothing is changed then.
        """

    def tokenizer(self, policy: PolicyWeights) -> PolicyWeights:
        """Return the record with a tokenizer's directory on this host. Raises as `weights` does."""


class WeightsSource(Protocol):
    """A source that brings published files to this host's cache. Both methods raise
    `SeamlessFlowError` if that fails.
    """

    def version(self, version: int, manifest_sha256: str) -> Path:
        """Return a version's directory on this host."""

    def tokenizer(self, tokenizer_hash: str) -> Path:
        """Return a tokenizer's directory on this host."""


class HostPlaces:
    """The published directories, or copies from the trainer's memory or the storage, as `settings`
    say.
    """

    def __init__(self, settings: WeightsSection, data_dir: Path, senders: Addresses) -> None:
        """Raises `SettingsRejected`."""
        self._settings = settings
        self._data_dir = data_dir
        self._senders = senders
        self._sources("")  # a wrong URL is a mistake in the settings, not in a move

    def weights(self, weights: PublishedWeights, policy: str) -> PublishedWeights:
        shown = _is_there(weights)
        taken = self._taken(
            policy, shown, lambda source: source.version(weights.version, weights.manifest_sha256)
        )
        return weights if taken is None else replace(weights, directory=str(taken))

    def tokenizer(self, policy: PolicyWeights) -> PolicyWeights:
        def take(source: WeightsSource) -> Path:
            directory = source.tokenizer(policy.tokenizer_hash)
            if not _renders(directory, policy):
                raise WeightsInvalid(str(directory), "tokenizer.json", "is not what was published")
            return directory

        shown = _renders(Path(policy.tokenizer_directory), policy)
        taken = None if shown else self._taken(policy.policy, shown, take)
        return policy if taken is None else replace(policy, tokenizer_directory=str(taken))

    def _taken(
        self, policy: str, shown: bool, take: Callable[[WeightsSource], Path]
    ) -> Path | None:
        """Return a directory from a source, or None to use the published one.

        `shown`: this host sees the published one. Otherwise raises the last source's error if all
        fail.
        """
        sources = self._sources(policy)
        if shown:
            always = self._settings.from_trainer == "always"
            sources = sources[:1] if always else ()
        failed: SeamlessFlowError | None = None
        for source in sources:
            try:
                return take(source)
            except SeamlessFlowError as error:
                _log.warning("%s", error)
                failed = error
        if failed is not None and not shown:
            raise failed
        return None

    def _sources(self, policy: str) -> Sequence[WeightsSource]:
        """Return the configured sources, the trainer's memory first."""
        settings = self._settings
        storage = weights_fetcher(self._settings, policy, self._data_dir)
        sources: list[WeightsSource] = [] if storage is None else [storage]
        if settings.from_trainer != "never":
            sources.insert(0, weights_receiver(settings, self._senders, policy, self._data_dir))
        return sources


def _is_there(weights: PublishedWeights) -> bool:
    """Return whether the host sees that version, and not another run's under the same path."""
    try:
        return sha256(weights.path / MANIFEST) == weights.manifest_sha256
    except OSError:
        return False


def _renders(directory: Path, policy: PolicyWeights) -> bool:
    try:
        digest = rendering_hash(directory, RendererSettings.from_json(policy.renderer))
    except (OSError, ValueError):
        return False
    return digest == policy.tokenizer_hash
