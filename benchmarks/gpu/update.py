"""New weights for an engine that samples: the pause, against only loading and a plain copy."""

from contextlib import closing
from itertools import pairwise
from pathlib import Path
from statistics import median

from benchmarks.gpu.part import Asked, Figures, meets, timed
from benchmarks.gpu.steps import write_model
from benchmarks.gpu.turn import Turn
from seamlessflow.infra.weights.manifest import Manifest, publish, verify
from seamlessflow.producers.rollout.engine.contract import SamplingParams
from seamlessflow.producers.rollout.torch_engine.engine import TorchEngine, TorchEngineSettings
from seamlessflow.schemas.tokens import pack
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.settings import TrainerSection


def run(asked: Asked) -> Figures:
    """Return seconds to publish, verify and load, and the stream's longest silence."""
    model = write_model(asked.directory / "model", asked.small)
    backend = TorchBackend(model, TrainerSection(device=asked.device, dtype="bfloat16"))
    backend.load(None, 0)
    backend.acquire()
    facts = Manifest(
        policy="policy",
        version=1,
        optimizer_step=1,
        lineage="l",
        dtype="bfloat16",
        hash="blake3",  # as the trainer's
    )
    paths: list[Path] = []

    def published() -> None:
        paths.append(
            publish(asked.directory / "weights", facts, backend.write_weights).weights.path
        )

    figures: dict[str, object] = {"publish_s": round(timed(published, asked.device), 3)}
    backend.release()
    (directory,) = paths
    size = sum(path.stat().st_size for path in directory.glob("*.safetensors"))
    figures |= {"mib": size // 2**20, "verify_s": round(timed(lambda: verify(directory), "cpu"), 3)}
    settings = TorchEngineSettings(device=asked.device, dtype="bfloat16", max_length=4096)
    with closing(TorchEngine.from_directory(model, settings)) as engine:
        engine.pause("keep")
        loads = timed(lambda: engine.load_weights(directory, 1), asked.device)
        engine.resume()
        figures |= {"load_s": round(loads, 3), **_stream(engine, directory, asked)}
    meets(figures["versions"] == [1, 2], "the stream has other versions", figures)
    return figures


def _stream(engine: TorchEngine, directory: Path, asked: Asked) -> dict[str, object]:
    """Return the longest silence in a stream that goes on through an update."""
    sampling = SamplingParams(200 if asked.small else 400)
    turn = Turn(engine, "stream", pack(list(range(64))), sampling).begun()
    engine.pause("keep")
    engine.load_weights(directory, 2)
    engine.resume()
    times = turn.ended().times
    silences = [later - earlier for earlier, later in pairwise(times)]
    return {
        "token_s": round(median(silences), 4),
        "longest_silence_s": round(max(silences), 3),
        "versions": sorted(turn.versions),
    }
