from pathlib import Path

from infra.weights.manifest import MANIFEST, Manifest, publish
from seamlessflow.reports.outcome import keep_final_weights


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


def _fill(draft: Path, text: str) -> None:
    (draft / "model.safetensors").write_text(text)
