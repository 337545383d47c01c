from pathlib import Path

from seamlessflow.infra.weights.manifest import MANIFEST, Manifest, publish
from seamlessflow.infra.weights.tensors import tensors_hash
from seamlessflow.infra.weights.versions import version_directory
from seamlessflow.inspection.model_directory import incomplete
from seamlessflow.reports.outcome import keep_final_weights
from seamlessflow.trainer.backends.adapter.whole_model import merge
from tests.builders.engines.adapters import adapter
from tests.builders.trainer.models import write_tiny


def test_the_last_version_becomes_a_plain_model_directory(tmp_path: Path) -> None:
    assert keep_final_weights(tmp_path) is None
    for version in (0, 3):
        facts = Manifest(
            policy="p", version=version, optimizer_step=version, lineage="l", dtype="float32"
        )
        text = f"weights of {version}"
        publish(tmp_path, facts, lambda d, text=text: _fill(d, text), sync=False)  # type: ignore[misc]
        final = keep_final_weights(tmp_path)
    assert final == tmp_path / "final"
    assert (final / "model.safetensors").read_text() == "weights of 3"
    assert not (final / MANIFEST).exists()


def test_the_last_adapter_becomes_a_model_with_its_base(tmp_path: Path) -> None:
    base, root = write_tiny(tmp_path / "base"), tmp_path / "weights"
    for version in (0, 3):
        last = adapter(base, version_directory(root, version), seed=version, version=version)
        final = keep_final_weights(root)
    merge(base, last, tmp_path / "merged")
    assert final == root / "final"
    assert incomplete(final) == ""
    assert tensors_hash(final) == tensors_hash(tmp_path / "merged") != tensors_hash(base)


def _fill(draft: Path, text: str) -> None:
    (draft / "model.safetensors").write_text(text)
