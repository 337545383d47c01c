"""Places of published weights and of the tokenizer on this host.

That is the trainer's own directory where this host sees it, and otherwise one in the host's cache,
made from the configured storage. Called by the device thread, before a move changes anything.
"""

from dataclasses import replace
from pathlib import Path
from typing import Protocol

from infra.rendering.settings import RendererSettings, rendering_hash
from infra.weights.manifest import MANIFEST, WeightsInvalid, sha256
from infra.weights.remote.fetching import WeightsFetcher, weights_fetcher
from infra.weights.settings import WeightsSection
from producers.rollout.roles.moves import PublishedWeights
from schemas.records import PolicyWeights


class WeightsPlaces(Protocol):
    """Directories of this host for what was published."""

    def weights(self, weights: PublishedWeights, policy: str) -> PublishedWeights:
        """Return the weights with a directory of this host. May take long.

        Raises `SeamlessFlowError` if they cannot be had; nothing is changed then.
        """

    def tokenizer(self, policy: PolicyWeights) -> PolicyWeights:
        """Return the record with a tokenizer's directory of this host. Raises as `weights`."""


class HostPlaces:
    """Directories as they were published, or from the storage of `settings`, if it names one."""

    def __init__(self, settings: WeightsSection, data_dir: Path) -> None:
        """Raises `SettingsRejected`."""
        self._settings = settings
        self._data_dir = data_dir
        self._fetcher("")  # a wrong URL is a mistake in the settings, not in a move

    def weights(self, weights: PublishedWeights, policy: str) -> PublishedWeights:
        fetcher = self._fetcher(policy)
        if fetcher is None or _is_there(Path(weights.directory), weights.manifest_sha256):
            return weights
        directory = fetcher.version(weights.version, weights.manifest_sha256)
        return replace(weights, directory=str(directory))

    def tokenizer(self, policy: PolicyWeights) -> PolicyWeights:
        fetcher = self._fetcher(policy.policy)
        if fetcher is None or _renders(Path(policy.tokenizer_directory), policy):
            return policy
        directory = fetcher.tokenizer(policy.tokenizer_hash)
        if not _renders(directory, policy):
            raise WeightsInvalid(str(directory), "tokenizer.json", "is not what was published")
        return replace(policy, tokenizer_directory=str(directory))

    def _fetcher(self, policy: str) -> WeightsFetcher | None:
        return weights_fetcher(self._settings, policy, self._data_dir)


def _is_there(directory: Path, manifest_sha256: str) -> bool:
    """Return whether the host sees that version, and not one of another run by the same path."""
    try:
        return sha256(directory / MANIFEST) == manifest_sha256
    except OSError:
        return False


def _renders(directory: Path, policy: PolicyWeights) -> bool:
    try:
        found = rendering_hash(directory, RendererSettings.from_json(policy.renderer))
    except (OSError, ValueError):
        return False
    return found == policy.tokenizer_hash
