"""Checks of published weights in a rollout process, before an engine gets them."""

from pathlib import Path

import pytest

from seamlessflow.infra.weights.adapter import TENSORS, AdapterInvalid
from seamlessflow.infra.weights.manifest import MANIFEST, WeightsInvalid, sha256
from seamlessflow.infra.weights.versions import PublishedWeights
from seamlessflow.producers.rollout.engines import WeightsCheck, WeightsUnsupported, verify_full
from tests.builders.engines.adapters import adapter
from tests.builders.trainer.models import write_tiny


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "base")


def published(directory: Path, version: int) -> PublishedWeights:
    return PublishedWeights(version, version, str(directory), sha256(directory / MANIFEST))


def test_an_adapter_is_accepted_with_its_base_and_by_a_rehearsal_refused(
    base: Path, tmp_path: Path
) -> None:
    weights = published(adapter(base, tmp_path / "one", version=1), 1)
    WeightsCheck().verify(weights)
    with pytest.raises(WeightsUnsupported, match="kind adapter"):
        verify_full(weights)


def test_a_base_that_has_changed_since_the_training_is_refused(base: Path, tmp_path: Path) -> None:
    weights = published(adapter(base, tmp_path / "one", version=1), 1)
    write_tiny(base, seed=1)
    with pytest.raises(AdapterInvalid, match="has other tensors"):
        WeightsCheck().verify(weights)


def test_a_base_is_read_once_and_the_adapter_each_time(base: Path, tmp_path: Path) -> None:
    check = WeightsCheck()
    first, second = (
        published(adapter(base, tmp_path / f"{n}", seed=n, version=n), n) for n in (1, 2)
    )
    check.verify(first)
    (base / "model.safetensors").unlink()
    check.verify(second)
    (Path(second.directory) / TENSORS).write_bytes(b"cut short")
    with pytest.raises(WeightsInvalid, match=TENSORS):
        check.verify(second)
