"""A worker takes what was published where its host sees it, and otherwise from the storage."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.network.addresses import HOST
from seamlessflow.infra.rendering.settings import RendererSettings
from seamlessflow.infra.weights.from_trainer.receiving import WeightsNotSent
from seamlessflow.infra.weights.from_trainer.sending import WeightsService
from seamlessflow.infra.weights.host_cache import CacheUnusable
from seamlessflow.infra.weights.manifest import verify
from seamlessflow.infra.weights.settings import WeightsSection
from seamlessflow.infra.weights.versions import PublishedWeights, WeightsGone
from seamlessflow.producers.rollout.roles.places import HostPlaces
from seamlessflow.schemas.records import PolicyWeights
from seamlessflow.trainer.policy import PolicySection
from seamlessflow.trainer.settings import TrainerSettings
from seamlessflow.trainer.steps.publication import Publication
from tests.builders.trainer.stub_backend import StubBackend


def no_senders(policy: str) -> Sequence[str]:
    return ()


class Run:
    """A trainer that sends its versions to a storage, and a host that may not see its directory."""

    def __init__(self, root: Path) -> None:
        self.root, model = root, root / "model"
        model.mkdir()
        (model / "tokenizer.json").write_text("{}")
        (model / "config.json").write_text("{}")
        self.section = WeightsSection(url=(root / "store").as_uri())
        self.publication = Publication(
            TrainerSettings(
                data_dir=root / "trainer",
                policy=PolicySection(model=model, renderer=RendererSettings("qwen3")),
                weights=self.section,
            )
        )
        self.publication.prepare()
        self.places = HostPlaces(self.section, root / "worker", no_senders)

    def publish(self, version: int) -> PolicyWeights:
        published = self.publication.write(StubBackend(), version, version, "a")
        return self.publication.policy_weights(published, 0)

    def hide(self) -> None:
        """Take the trainer's directory out of sight, as on another host."""
        (self.root / "trainer").rename(self.root / "elsewhere")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def named(record: PolicyWeights) -> PublishedWeights:
    return PublishedWeights.from_record(record)


def test_a_host_that_sees_the_directory_uses_it(run: Run) -> None:
    record = run.publish(0)
    assert run.places.weights(named(record), record.policy).directory == record.directory
    assert run.places.tokenizer(record) == record


def test_a_host_that_does_not_see_it_takes_weights_and_tokenizer_from_the_storage(
    run: Run,
) -> None:
    run.publish(0)
    record = run.publish(1)
    run.hide()
    here = run.places.weights(named(record), record.policy)
    assert Path(here.directory).is_relative_to(run.root / "worker" / "weights-cache")
    assert verify(Path(here.directory), record.manifest_sha256).version == 1
    tokenizer = Path(run.places.tokenizer(record).tokenizer_directory)
    assert tokenizer.is_relative_to(run.root / "worker" / "weights-cache")
    assert (tokenizer / "tokenizer.json").read_text() == "{}"


def test_another_run_s_version_at_the_same_path_is_not_taken_for_it(run: Run) -> None:
    record = run.publish(0)
    content = Path(record.directory, "model.safetensors").read_bytes()
    (Path(record.directory) / "manifest.json").write_text("{}")
    here = Path(run.places.weights(named(record), record.policy).directory)
    assert here != Path(record.directory)
    assert (here / "model.safetensors").read_bytes() == content


def test_another_tokenizer_at_the_same_path_is_not_taken_for_it(run: Run) -> None:
    record = run.publish(0)
    Path(record.tokenizer_directory, "tokenizer.json").write_text('{"other": 1}')
    here = Path(run.places.tokenizer(record).tokenizer_directory)
    assert (here / "tokenizer.json").read_text() == "{}"


def test_without_a_storage_nothing_is_looked_for_elsewhere(run: Run) -> None:
    record = run.publish(0)
    run.hide()
    places = HostPlaces(WeightsSection(), run.root / "worker", no_senders)
    assert places.weights(named(record), record.policy) == named(record)
    assert places.tokenizer(record) == record
    assert not (run.root / "worker").exists()


@pytest.fixture
def service(run: Run) -> Iterator[WeightsService]:
    """A training process that sends the run's versions."""
    made = WeightsService(run.root / "elsewhere" / "weights", HOST)
    yield made
    made.close()


def asking(run: Run, service: WeightsService, **section: Any) -> HostPlaces:
    return HostPlaces(
        WeightsSection(**section), run.root / "worker", lambda policy: [service.address]
    )


def test_a_host_takes_weights_and_tokenizer_from_the_trainer(
    run: Run, service: WeightsService
) -> None:
    record, places = run.publish(0), asking(run, service, from_trainer="unseen")
    assert places.weights(named(record), record.policy) == named(record)
    run.hide()
    shutil.rmtree(run.root / "store")
    here = Path(places.weights(named(record), record.policy).directory)
    assert here.is_relative_to(run.root / "worker" / "weights-cache")
    assert verify(here, record.manifest_sha256).version == 0
    tokenizer = Path(places.tokenizer(record).tokenizer_directory)
    assert (tokenizer / "tokenizer.json").read_text() == "{}"


def test_a_host_may_take_all_from_the_trainer_though_it_sees_the_directory(
    run: Run, service: WeightsService
) -> None:
    record, places = run.publish(0), asking(run, service, from_trainer="always")
    run.hide()
    (run.root / "trainer").symlink_to(run.root / "elsewhere")
    here = Path(places.weights(named(record), record.policy).directory)
    assert here.is_relative_to(run.root / "worker")
    service.close()
    later = run.publish(1)
    assert places.weights(named(later), later.policy) == named(later)


def test_weights_that_the_trainer_does_not_send_come_from_the_storage(
    run: Run, service: WeightsService
) -> None:
    record = run.publish(0)
    places = asking(run, service, from_trainer="unseen", url=run.section.url)
    run.hide()
    service.close()
    here = Path(places.weights(named(record), record.policy).directory)
    assert verify(here, record.manifest_sha256).version == 0


def test_a_cache_that_cannot_be_used_costs_a_host_nothing_that_sees_the_directory(
    run: Run, service: WeightsService
) -> None:
    record, places = run.publish(0), asking(run, service, from_trainer="always")
    (run.root / "worker").write_text("no directory")
    assert places.weights(named(record), record.policy) == named(record)
    run.hide()
    with pytest.raises(CacheUnusable, match=r"weights-cache/policy-p.* cannot be used: .*worker"):
        places.weights(named(record), record.policy)
    with pytest.raises(CacheUnusable):
        places.tokenizer(record)


def test_weights_that_nobody_has_are_an_error_of_the_last_place_that_was_asked(
    run: Run, service: WeightsService
) -> None:
    record, places = run.publish(0), asking(run, service, from_trainer="unseen")
    run.hide()
    shutil.rmtree(run.root / "elsewhere")
    with pytest.raises(WeightsNotSent, match="is not there"):
        places.weights(named(record), record.policy)


def test_what_is_nowhere_is_an_error(run: Run) -> None:
    record = run.publish(0)
    run.hide()
    shutil.rmtree(run.root / "store")
    with pytest.raises(WeightsGone):
        run.places.weights(named(record), record.policy)
    with pytest.raises(WeightsGone):
        run.places.tokenizer(replace(record, tokenizer_hash="other"))


def test_a_url_of_no_known_storage_is_refused_at_the_start(run: Run) -> None:
    with pytest.raises(SettingsRejected, match="SEAMLESSFLOW_WEIGHTS__URL"):
        HostPlaces(WeightsSection(url="nonsense://bucket"), run.root, no_senders)
