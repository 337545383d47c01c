"""Weights that a user chooses, published without a trainer: for an evaluation, or a frozen policy.

They become a version below the evaluation's or the policy's weights directory, with a manifest like
those that a trainer writes. Importable without torch.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from seamlessflow.config import RunConfig
from seamlessflow.each_policy import each_frozen
from seamlessflow.infra import clock
from seamlessflow.infra.disk import link_or_copy
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.weights.adapter import BaseModel
from seamlessflow.infra.weights.manifest import (
    MANIFEST,
    WeightsInvalid,
    base_of,
    present,
    publish,
    read_manifest,
)
from seamlessflow.infra.weights.versions import (
    PublishedWeights,
    version_directory,
    versions,
)
from seamlessflow.schemas.topics import CONTROL, FLEET, fleet_key
from seamlessflow.trainer.settings import TrainerSection, TrainerSettings
from seamlessflow.trainer.steps.publication import Publication

_LINEAGE = "evaluation"
FROZEN_LINEAGE = "frozen"
"""Lineage for a frozen policy's weights."""
_FLUSH_S = 30.0


class NoSuchVersion(SeamlessFlowError):
    """A version's weights are not on disk."""

    def __init__(self, version: int, directory: Path, existing: list[int]) -> None:
        self.version = version
        self.directory = directory
        self.existing = existing
        text = ", ".join(map(str, existing)) or "none"
        super().__init__(f"version {version} is not in {directory}; there are: {text}")


@dataclass(frozen=True)
class ChosenWeights:
    """A Hugging Face directory, or an adapter's, with its policy version and optimizer step."""

    directory: Path
    version: int
    step: int
    base: BaseModel | None = None
    """The model that an adapter belongs to; None for a whole model."""

    @property
    def model(self) -> Path:
        """Return the directory with configuration and tokenizer."""
        return self.directory if self.base is None else Path(self.base.directory)


def choose_weights(config: RunConfig, version: int | None, directory: Path | None) -> ChosenWeights:
    """Return the weights in `directory`, else the weights of `version`, else the run's newest.

    For a run without any weights, it returns the initial model. Raises `NoSuchVersion`.
    """
    if directory is not None:
        return _weights(directory, 0)
    existing = versions(config.weights_dir)
    if version is None and not existing:
        return _weights(config.policy.model, 0)
    number = max(existing) if version is None else version
    if number not in existing:
        raise NoSuchVersion(number, config.weights_dir, list(existing))
    return _weights(version_directory(config.weights_dir, number), number)


def announce_weights(config: RunConfig, kafka: KafkaSettings, weights: ChosenWeights) -> None:
    """Publish the weights as the current ones for the policy in `config`."""
    # Without the run's weights directory, the version goes below this evaluation's own.
    section = config.trainer.model_copy(update={"weights_dir": None})
    settings = _settings(config, section, kafka, weights)
    publication = Publication(settings)
    publication.prepare()
    root = settings.weights_dir.resolve()
    _announce(publication, _publish(publication, root, weights, _LINEAGE), _LINEAGE, kafka)


def announce_frozen(config: RunConfig, kafka: KafkaSettings) -> None:
    """Publish each frozen policy's model, as its only version.

    A run that goes on announces the version that it has. The configuration's check has compared
    that version's files with the model's.
    """
    for policy_config in each_frozen(config):
        if config.frozen[policy_config.run.policy] is not None:
            continue  # past versions, which the scheduler shows
        weights = _weights(policy_config.policy.model, 0)
        settings = _settings(policy_config, policy_config.trainer, kafka, weights)
        publication = Publication(settings)
        publication.prepare()
        root = settings.weights_dir.resolve()
        published = present(root) or _publish(publication, root, weights, FROZEN_LINEAGE)
        publication.send(published)
        publication.settle()
        _announce(publication, published, FROZEN_LINEAGE, kafka)


def _settings(
    config: RunConfig, section: TrainerSection, kafka: KafkaSettings, weights: ChosenWeights
) -> TrainerSettings:
    """Return the settings for a trainer that would publish the weights."""
    return TrainerSettings(
        kafka=kafka,
        data_dir=config.out,
        run=config.run.model_dump(),
        policy=config.policy.model_copy(update={"model": weights.model}),
        trainer=section.model_copy(update={"tags": ("train",)}),
        weights=config.weights,
    )


def _publish(
    publication: Publication, root: Path, weights: ChosenWeights, lineage: str
) -> PublishedWeights:
    dtype = _dtype(weights.model)
    facts = publication.facts(weights.version, weights.step, lineage, dtype, weights.base)
    return publish(root, facts, lambda draft: _link_all(weights.directory, draft)).weights


def _announce(
    publication: Publication, published: PublishedWeights, lineage: str, kafka: KafkaSettings
) -> None:
    now_ms = clock.now_ms()
    fleet = publication.policy_weights(published, now_ms)
    producer = Producer(kafka, "weights")
    try:
        producer.send(CONTROL.name, publication.announcement(published, lineage, now_ms))
        producer.send(FLEET.name, fleet, key=fleet_key(fleet))
        producer.flush(_FLUSH_S)
    finally:
        producer.close()


def _weights(directory: Path, version: int) -> ChosenWeights:
    try:
        step = read_manifest(directory).optimizer_step
    except WeightsInvalid:
        step = 0
    return ChosenWeights(directory, version, step, base_of(directory))


def _dtype(directory: Path) -> str:
    """Return the element type that the model's configuration names."""
    values = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    return str(values.get("dtype") or values.get("torch_dtype") or "float32")


def _link_all(source: Path, draft: Path) -> None:
    for path in source.iterdir():
        if path.is_file() and path.name != MANIFEST:
            link_or_copy(path, draft / path.name)
