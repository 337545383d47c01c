"""Versions of an adapter: small, and bound to the model that they were trained on."""

from pathlib import Path

from seamlessflow.infra.rendering.settings import RendererSettings
from seamlessflow.infra.weights.adapter import CONFIG, TENSORS
from seamlessflow.infra.weights.manifest import MANIFEST, verify
from seamlessflow.infra.weights.tensors import tensors_hash
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.policy import PolicySection
from seamlessflow.trainer.settings import TrainerSection, TrainerSettings
from seamlessflow.trainer.steps.publication import Publication
from tests.builders.trainer.models import write_tiny
from tests.builders.trainer.stub_backend import StubBackend


def settings(tmp_path: Path, backend: str = "torch") -> TrainerSettings:
    model = write_tiny(tmp_path / "model")
    section = {"device": "cpu", "threads": 1, "backend": backend, "adapter": {"rank": 2}}
    return TrainerSettings(
        data_dir=tmp_path,
        policy=PolicySection(model=model, renderer=RendererSettings("qwen3")),
        trainer=TrainerSection.model_validate(section),
    )


def test_a_version_is_the_adapter_alone_and_names_its_base(tmp_path: Path) -> None:
    run_settings = settings(tmp_path)
    publication, backend = (
        Publication(run_settings),
        TorchBackend(run_settings.policy.model, run_settings.trainer),
    )
    publication.prepare()
    written = publication.write(backend, 3, 2, "a")
    directory = Path(written.directory)
    assert sorted(path.name for path in directory.iterdir()) == sorted([CONFIG, MANIFEST, TENSORS])
    manifest = verify(directory, written.manifest_sha256)
    assert manifest.kind == "adapter"
    assert manifest.base_model == str(run_settings.policy.model.resolve())
    assert manifest.base_hash == tensors_hash(run_settings.policy.model)
    assert publication.announcement(written, "a", 9).kind == "adapter"


def test_a_rehearsal_of_an_adapter_publishes_what_its_clock_writes(tmp_path: Path) -> None:
    publication = Publication(settings(tmp_path, "clock"))
    publication.prepare()
    written = publication.write(StubBackend(), 0, 0, "a")
    assert verify(Path(written.directory)).kind == "full"
    assert publication.announcement(written, "a", 9).kind == "full"
