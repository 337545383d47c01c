"""Announces weights that lie on disk, where no trainer runs: for evaluations.

They become a version of their own below the run's weights directory, with a manifest, like those of
a trainer. Importable without torch.
"""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from infra import clock
from infra.errors import SeamlessFlowError
from infra.kafka.producer import Producer
from infra.settings import KafkaSettings
from infra.weights.manifest import MANIFEST, Manifest, WeightsInvalid, publish, read_manifest
from infra.weights.versions import version_directory, versions
from schemas.topics import CONTROL, FLEET, fleet_key
from seamlessflow.config import RunConfig
from trainer.recovery.control_state import Published
from trainer.settings import TrainerSettings
from trainer.steps.publication import Publication

_LINEAGE = "evaluation"
_FLUSH_S = 30.0


class NoSuchVersion(SeamlessFlowError):
    """The weights of a version are not on disk."""

    def __init__(self, version: int, directory: Path, there: list[int]) -> None:
        self.version = version
        self.directory = directory
        self.there = there
        known = ", ".join(map(str, there)) or "none"
        super().__init__(f"version {version} is not in {directory}; there are: {known}")


@dataclass(frozen=True)
class Weights:
    """A Hugging Face directory and the version it is."""

    directory: Path
    version: int
    step: int


def chosen(config: RunConfig, version: int | None, directory: Path | None) -> Weights:
    """The directory that is named, the version, or the newest of the run; else the initial model.

    Raises `NoSuchVersion`.
    """
    if directory is not None:
        return _weights(directory, 0)
    there = versions(config.weights_dir)
    if version is None and not there:
        return _weights(config.policy.model, 0)
    number = max(there) if version is None else version
    if number not in there:
        raise NoSuchVersion(number, config.weights_dir, list(there))
    return _weights(version_directory(config.weights_dir, number), number)


def announce_weights(config: RunConfig, kafka: KafkaSettings, weights: Weights) -> None:
    """Publishes the weights as the current ones of `config`'s policy."""
    policy = config.policy.model_copy(update={"model": weights.directory})
    settings = TrainerSettings(
        kafka=kafka,
        data_dir=config.out,
        run=config.run.model_dump(),
        policy=policy,
        trainer=config.trainer.model_copy(update={"weights_dir": None, "tags": ("train",)}),
    )
    publication = Publication(settings)
    publication.prepare()
    facts = Manifest(
        policy=config.run.policy,
        version=weights.version,
        optimizer_step=weights.step,
        lineage=_LINEAGE,
        dtype=_dtype(weights.directory),
    )
    directory, digest = publish(
        settings.weights_dir.resolve(), facts, lambda draft: _link_all(weights.directory, draft)
    )
    published = Published(weights.version, weights.step, str(directory), digest)
    now_ms = clock.now_ms()
    fleet = publication.policy_weights(published, now_ms)
    producer = Producer(kafka, "weights")
    try:
        producer.send(CONTROL.name, publication.announcement(published, _LINEAGE, now_ms))
        producer.send(FLEET.name, fleet, key=fleet_key(fleet))
        producer.flush(_FLUSH_S)
    finally:
        producer.close()


def _weights(directory: Path, version: int) -> Weights:
    try:
        step = read_manifest(directory).optimizer_step
    except WeightsInvalid:
        step = 0
    return Weights(directory, version, step)


def _dtype(directory: Path) -> str:
    """As the model's configuration names it."""
    values = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    return str(values.get("dtype") or values.get("torch_dtype") or "float32")


def _link_all(source: Path, draft: Path) -> None:
    for path in source.iterdir():
        if path.is_file() and path.name != MANIFEST:
            try:
                os.link(path.resolve(), draft / path.name)
            except OSError:
                shutil.copyfile(path, draft / path.name)
