"""New weights from a trainer to an engine on one device, by each way that the project has.

The trainer writes a version (`written_s`), the engine's side takes its directory (`taken_s`), the
engine loads that (`loaded_s`). `disk` and `memory` are directories that both see, the second on
tmpfs. With `from_trainer` a version on disk is sent over loopback into a cache. With `delta` its
changed elements go through a storage (`sent_s`). `adapter` is only an adapter, on disk.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.gpu.part import Asked, Figures, meets, so_far, timed
from benchmarks.gpu.shapes import model_config, random_weights
from benchmarks.gpu.steps import some_chains, step
from seamlessflow.infra.disk import free_bytes
from seamlessflow.infra.network.addresses import HOST
from seamlessflow.infra.weights.adapter import BaseModel
from seamlessflow.infra.weights.from_trainer.receiving import WeightsReceiver
from seamlessflow.infra.weights.from_trainer.sending import WeightsService
from seamlessflow.infra.weights.manifest import Manifest, publish, verify
from seamlessflow.infra.weights.remote.fetching import WeightsFetcher
from seamlessflow.infra.weights.remote.sending import WeightsSender
from seamlessflow.infra.weights.remote.storage import WeightsStorage
from seamlessflow.infra.weights.versions import PublishedWeights
from seamlessflow.producers.rollout.torch_engine.engine import TorchEngine, TorchEngineSettings
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.settings import TrainerSection

SHAPE = "shapes-1.5b"
_POLICY = "policy"
_TMPFS = Path("/dev/shm")
_COPIES = 4
"""Versions that are on tmpfs at once: one that is published there, and those in the caches."""
_RANK = 16
_LEARNING_RATE = 1e-6
"""As for a large model; it decides how many elements a delta has."""
_ANCHOR_EVERY = 20
_KEPT = 3


@dataclass(frozen=True, slots=True)
class WrittenVersions:
    """Two versions that a trainer wrote to a directory, an update between them."""

    first: PublishedWeights
    second: PublishedWeights
    second_s: float
    """Seconds in which the second one was written."""


def run(asked: Asked) -> Figures:
    """Return each way's seconds, for a model with Qwen2.5-1.5B's shape."""
    model = asked.directory / "model"
    random_weights(model_config(SHAPE, asked.small), asked.device).save_pretrained(model)
    size = sum(path.stat().st_size for path in model.glob("*.safetensors"))
    figures: dict[str, object] = {"mib": size // 2**20}
    with _fast(asked, _COPIES * size) as (fast, on_tmpfs):
        figures["memory_is"] = "tmpfs" if on_tmpfs else "none: a disk, tmpfs has too little room"
        disk = asked.directory / "disk"
        by_place = _written(asked, model, {"disk": disk, "memory": fast / "published"})
        on_disk = by_place["disk"]
        settings = TorchEngineSettings(device=asked.device, dtype="bfloat16", max_length=1024)
        with closing(TorchEngine.from_directory(model, settings)) as engine:
            engine.pause("keep")
            loading = Loading(engine, asked.device)
            for place, versions in by_place.items():
                figures[place] = loading.figures(versions, partial(_seen, versions))
            so_far(figures)
            figures["from_trainer"] = loading.figures(on_disk, lambda: _sent(disk, on_disk, fast))
            figures["delta"] = _delta(loading, on_disk, fast)
            so_far(figures)
            figures["adapter"] = _adapter(asked, model, loading)
    meets(loading.right, "the engine has another version", figures)
    return figures


class Loading:
    """An engine that loads versions, each under its own number."""

    def __init__(self, engine: TorchEngine, device: str) -> None:
        """Take a paused engine."""
        self.right = True
        """False once the engine had another version than the one that was loaded."""
        self._engine = engine
        self._device = device
        self._number = 0

    def figures(self, versions: WrittenVersions, take: Callable[[], Path]) -> dict[str, float]:
        """Return seconds for the second version: written, taken by `take`, loaded."""
        directories: list[Path] = []
        taken_s = timed(lambda: directories.append(take()), "cpu")
        loaded_s = self.load(directories[0])
        return {
            "written_s": round(versions.second_s, 3),
            "taken_s": round(taken_s, 3),
            "loaded_s": round(loaded_s, 3),
        }

    def load(self, directory: Path) -> float:
        """Load a version; return the seconds that it took."""
        self._number += 1
        number = self._number
        seconds = timed(lambda: self._engine.load_weights(directory, number), self._device)
        self.right &= self._engine.health().version == number
        return seconds


def _written(asked: Asked, model: Path, places: dict[str, Path]) -> dict[str, WrittenVersions]:
    """Return a whole model's versions in each place; they are equal in all."""
    chosen = {"device": asked.device, "dtype": "bfloat16", "mismatch_memory_mb": 0}
    backend = TorchBackend(model, TrainerSection.model_validate(chosen))
    backend.load(None, 0)
    backend.acquire()
    facts = _facts(1)
    first = {place: _publish(asked, backend, root, facts) for place, root in places.items()}
    backend.train(step(some_chains(2, 32, 16), 1024, learning_rate=_LEARNING_RATE))
    facts = _facts(2)
    second = {place: _publish(asked, backend, root, facts) for place, root in places.items()}
    backend.release()
    return {place: WrittenVersions(first[place][0], *second[place]) for place in places}


def _publish(
    asked: Asked, backend: TorchBackend, root: Path, facts: Manifest
) -> tuple[PublishedWeights, float]:
    """Publish a back end's weights; return them, and the seconds that it took."""
    made: list[PublishedWeights] = []
    root.mkdir(parents=True, exist_ok=True)
    seconds = timed(
        lambda: made.append(publish(root, facts, backend.write_weights).weights), asked.device
    )
    return made[0], seconds


def _facts(version: int, base: BaseModel | None = None) -> Manifest:
    """Return a version's manifest as the trainer makes it; `base`: an adapter's base model."""
    return Manifest(
        policy=_POLICY,
        version=version,
        optimizer_step=version,
        lineage="part",
        dtype="bfloat16",
        kind="full" if base is None else "adapter",
        base_model=None if base is None else base.directory,
        base_hash=None if base is None else base.hash,
        hash="blake3",
    )


def _seen(versions: WrittenVersions) -> Path:
    """Return the second version's directory, checked as a worker beside the trainer does."""
    verify(versions.second.path, versions.second.manifest_sha256)
    return versions.second.path


def _sent(root: Path, versions: WrittenVersions, fast: Path) -> Path:
    """Return the second version in a cache, sent by a training process, and checked."""
    new = versions.second
    with closing(WeightsService(root, HOST)) as service:
        receiver = WeightsReceiver(lambda policy: [service.address], _POLICY, fast / "sent")
        return receiver.version(new.version, new.manifest_sha256)


def _delta(loading: Loading, versions: WrittenVersions, fast: Path) -> dict[str, float]:
    """Return seconds, and the share of a version's bytes that was sent."""
    storage = WeightsStorage((fast / "storage").as_uri())
    sender = WeightsSender(storage, _POLICY, _ANCHOR_EVERY, _KEPT)
    whole = sender.send(versions.first.path)
    fetcher = WeightsFetcher(storage, _POLICY, fast / "fetched")
    fetcher.version(versions.first.version, versions.first.manifest_sha256)
    sent: list[int] = []
    sent_s = timed(lambda: sent.append(sender.send(versions.second.path)), "cpu")
    new = versions.second
    figures = loading.figures(versions, lambda: fetcher.version(new.version, new.manifest_sha256))
    return {**figures, "sent_s": round(sent_s, 3), "share_of_bytes": round(sent[0] / whole, 4)}


def _adapter(asked: Asked, model: Path, loading: Loading) -> dict[str, float]:
    """Return seconds for an adapter's second version; with the first the base was loaded."""
    chosen = {
        "device": asked.device,
        "dtype": "bfloat16",
        "adapter": {"rank": _RANK},
        "mismatch_memory_mb": 0,
    }
    backend = TorchBackend(model, TrainerSection.model_validate(chosen))
    backend.load(None, 0)
    backend.acquire()
    base = BaseModel.from_directory(model)
    root = asked.directory / "adapters"
    first, _ = _publish(asked, backend, root, _facts(1, base))
    backend.train(step(some_chains(2, 32, 16), 1024, learning_rate=_LEARNING_RATE))
    second, seconds = _publish(asked, backend, root, _facts(2, base))
    backend.release()
    loading.load(first.path)
    versions = WrittenVersions(first, second, seconds)
    return {**loading.figures(versions, partial(_seen, versions)), "rank": _RANK}


@contextmanager
def _fast(asked: Asked, size: int) -> Iterator[tuple[Path, bool]]:
    """Yield a scratch directory, and whether it is on tmpfs: if that has `size` free bytes."""
    on_tmpfs = _TMPFS.is_dir() and free_bytes(_TMPFS) >= size
    with TemporaryDirectory(dir=_TMPFS if on_tmpfs else asked.directory) as directory:
        yield Path(directory), on_tmpfs
