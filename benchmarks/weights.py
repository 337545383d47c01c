"""Weights from the trainer to an engine: publishing, checking and loading against a plain copy.

    python -m benchmarks weights [--mb 10,100,1000] [--repeats 3] [--disk DIR] [--fast DIR]

The ways are measured for each size and place (`disk`, forced to it; `tmpfs`). `copy` is a plain
copy of the files. In `publish` the back end's part is a copy of the same bytes, so the rest is what
publishing adds: hashes, manifest, rename. `verify` is a worker's check, the first on its host;
`verify_again` is the next worker's. `load` is `verify`, then the torch engine's reading and copying
into a model's tensors. In `sent` a worker takes a version from a training process over loopback,
into its cache on the same file system, and checks it; both ends are this process. Figures are GB/s
and CPU seconds of the quickest of `--repeats`.

`pause`: a running turn in the torch engine gets other weights, with a model of `--pause-mb`. It is
the longest wait between two of its tokens, beside only loading and recomputing the keys. `delta`: a
version of `--delta-mb` in which a share `--changed` of the elements changed. It has the delta's
bytes, its making at the trainer (`write`), and the making of the version at a worker, compared with
its manifest (`make`).
"""

import argparse
import json
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.load.random_weights import small_model, write_model
from seamlessflow.infra.disk import flush_to_disk
from seamlessflow.infra.network.addresses import HOST
from seamlessflow.infra.weights.delta import make_version, write_delta
from seamlessflow.infra.weights.from_trainer.receiving import WeightsReceiver
from seamlessflow.infra.weights.from_trainer.sending import WeightsService
from seamlessflow.infra.weights.manifest import Manifest, publish, verify
from seamlessflow.infra.weights.versions import PublishedWeights
from seamlessflow.producers.rollout.engine.contract import SamplingParams, TokenChunk
from seamlessflow.producers.rollout.torch_engine.engine import TorchEngine, TorchEngineSettings
from seamlessflow.producers.rollout.torch_engine.weights import read_weights

_DEADLINE_S = 600.0
_MOST_MB = 4_000


@dataclass(frozen=True)
class Took:
    """Wall and CPU seconds of some work, in all threads of this process."""

    wall_s: float
    cpu_s: float

    def rate(self, size: int) -> dict[str, float]:
        """Return GB/s and CPU seconds."""
        return {"gb_per_s": round(size / self.wall_s / 1e9, 2), "cpu_s": round(self.cpu_s, 3)}


def main(argv: Sequence[str]) -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(prog="benchmarks weights", description=__doc__)
    parser.add_argument("--mb", type=sizes_mb, default="10,100,1000", help="sizes, up to 4000")
    parser.add_argument("--repeats", type=int, choices=range(1, 100), default=3, metavar="N")
    parser.add_argument(
        "--disk", type=existing_directory, help="a directory on a disk; none: that of TMPDIR"
    )
    parser.add_argument("--fast", type=existing_directory, default="/dev/shm", help="one on tmpfs")
    parser.add_argument("--float32", action="store_true", help="instead of bfloat16")
    parser.add_argument("--pause-mb", type=int, default=40, help="0: not measured")
    parser.add_argument("--delta-mb", type=int, default=200, help="0: not measured")
    parser.add_argument("--changed", type=float, default=0.02, help="share of the elements")
    asked = parser.parse_args(argv)
    figures: dict[str, object] = {}
    for size in asked.mb:
        for place, parent in (("disk", asked.disk), ("tmpfs", asked.fast)):
            with tempfile.TemporaryDirectory(dir=parent) as scratch:
                figures[f"{place}_{size}_mb"] = compare(Path(scratch), size, asked, place == "disk")
    if asked.pause_mb:
        with tempfile.TemporaryDirectory(dir=asked.fast) as scratch:
            figures["pause"] = pause(Path(scratch), asked.pause_mb)
    if asked.delta_mb:
        with tempfile.TemporaryDirectory(dir=asked.fast) as scratch:
            figures["delta"] = delta(Path(scratch), asked.delta_mb, asked)
    print(json.dumps({"benchmark": "weights", **figures}))


def sizes_mb(text: str) -> list[int]:
    """Return sizes in MB. Raises `ValueError`, which argparse reports."""
    sizes = [int(size) for size in text.split(",")]
    if not all(1 <= size <= _MOST_MB for size in sizes):
        raise argparse.ArgumentTypeError(f"{text!r}: sizes of 1 to {_MOST_MB}")
    return sizes


def existing_directory(text: str) -> Path:
    """Return a directory that exists, for argparse."""
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"there is no directory {text}")
    return Path(text)


def compare(root: Path, size_mb: int, asked: argparse.Namespace, sync: bool) -> dict[str, object]:
    """Return the rates of all ways over a model directory with that size, one after the other."""
    source = root / "source"
    source.mkdir()
    state = write_model(source, size_mb, torch.float32 if asked.float32 else torch.bfloat16)
    size = sum(path.stat().st_size for path in source.iterdir())
    best: dict[str, Took] = {}
    for _ in range(asked.repeats):
        for way, took in once(root, source, state, sync).items():
            best[way] = min(best.get(way, took), took, key=lambda measure: measure.wall_s)
    copy = best["copy"]
    ratios = {
        f"{way}_to_copy": round(copy.wall_s / took.wall_s, 2)
        for way, took in best.items()
        if way != "copy"
    }
    return {"bytes": size, **{way: took.rate(size) for way, took in best.items()}, **ratios}


def once(root: Path, source: Path, state: dict[str, Tensor], sync: bool) -> dict[str, Took]:
    """Return what each way takes, once; all that it wrote is removed."""
    by_way = {"copy": timed(lambda: copied(source, root / "copy", sync))}
    shutil.rmtree(root / "copy")
    facts = Manifest(policy="p", version=1, optimizer_step=1, lineage="a", dtype="", hash="blake3")
    made: list[PublishedWeights] = []

    def publish_one() -> None:
        version = publish(root, facts, lambda draft: copied(source, draft, False), sync)
        assert version.tensors_hash  # of the announcement
        made.append(version.weights)

    by_way["publish"] = timed(publish_one)
    directory, digest = made[0].path, made[0].manifest_sha256
    by_way["verify_again"] = timed(lambda: verify(directory, digest))
    with as_another_host(root):
        by_way["verify"] = timed(lambda: verify(directory, digest))
    load = timed(lambda: take(directory, state))
    verified = by_way["verify"]
    by_way["sent"] = timed(lambda: sent(directory, digest, root / "worker"))
    by_way["load"] = Took(verified.wall_s + load.wall_s, verified.cpu_s + load.cpu_s)
    by_way["load_alone"] = load
    for each in (directory, root / "worker"):
        shutil.rmtree(each)
    return by_way


def sent(directory: Path, digest: str, cache: Path) -> None:
    """Take a version from a training process, and compare it with its manifest."""
    with closing(WeightsService(directory.parent, HOST)) as service:
        WeightsReceiver(lambda policy: [service.address], "p", cache).version(1, digest)


@contextmanager
def as_another_host(scratch: Path) -> Iterator[None]:
    """Hide the marks of this host's checks, which are among its temporary files."""
    tempfile.tempdir = tempfile.mkdtemp(dir=scratch)
    try:
        yield
    finally:
        shutil.rmtree(tempfile.tempdir)
        tempfile.tempdir = None


def take(directory: Path, state: dict[str, Tensor]) -> None:
    """Read weights as the torch engine does, and copy them into a model's tensors."""
    for name, tensor in read_weights(directory, state).items():
        state[name].copy_(tensor)


def copied(source: Path, target: Path, sync: bool) -> None:
    """Copy a directory's files; wait for the disk if asked."""
    target.mkdir(exist_ok=True)
    for path in source.iterdir():
        shutil.copyfile(path, target / path.name)
        if sync:
            flush_to_disk(target / path.name)


def delta(root: Path, size_mb: int, asked: argparse.Namespace) -> dict[str, object]:
    """Return a weight delta's size, and the rates at which it is made and applied."""
    dtype = torch.float32 if asked.float32 else torch.bfloat16
    versions = []
    for version, changed in enumerate((0.0, asked.changed)):

        def fill(draft: Path, changed: float = changed) -> None:
            write_model(draft, size_mb, dtype, changed)

        facts = Manifest(
            policy="p", version=version, optimizer_step=0, lineage="a", dtype="", hash="blake3"
        )
        versions.append(publish(root, facts, fill, False).weights.path)
    size = sum(path.stat().st_size for path in versions[1].iterdir())
    target = root / "delta"
    target.mkdir()
    sent: list[int] = []
    write = timed(lambda: sent.append(write_delta(versions[0], versions[1], target)))
    make = timed(lambda: make_version(root / "worker", versions[0], [target]))
    copy = timed(lambda: copied(versions[1], root / "copy", False))
    return {
        "bytes": size,
        "changed": asked.changed,
        "share_of_bytes": round(sent[0] / size, 4),
        "write": write.rate(size),
        "make": make.rate(size),
        "copy": copy.rate(size),
    }


def pause(root: Path, size_mb: int) -> dict[str, float]:
    """Return the longest wait for a token at an update, and its parts, in milliseconds."""
    model = small_model(size_mb)
    model.save_pretrained(root / "model")
    size = sum(path.stat().st_size for path in (root / "model").glob("*.safetensors"))
    facts = Manifest(policy="p", version=1, optimizer_step=1, lineage="a", dtype="", hash="blake3")
    made = publish(root, facts, lambda draft: copied(root / "model", draft, False)).weights
    with closing(TorchEngine(model, TorchEngineSettings(threads=1))) as engine:
        engine.pause("keep")
        alone = timed(lambda: engine.load_weights(made.path, 1))
        engine.resume()
        stream = Stream(engine)
        usual = stream.longest_gap(200)
        with as_another_host(root):
            checking = timed(lambda: verify(made.path, made.manifest_sha256))
        engine.pause("keep")
        engine.load_weights(made.path, 2)
        engine.resume()
        gap = stream.longest_gap(50)
        engine.abort(None)
        recomputed = 1000 * engine.health().recomputing_seconds
    return {
        "bytes": size,
        "load_alone_ms": round(1000 * alone.wall_s, 1),
        "verify_ms": round(1000 * checking.wall_s, 1),
        "recomputed_keys_ms": round(recomputed, 1),
        "longest_gap_ms": round(1000 * gap, 1),
        "longest_gap_without_ms": round(1000 * usual, 1),
    }


class Stream:
    """A running turn, whose tokens are timed."""

    def __init__(self, engine: TorchEngine) -> None:
        self._times = [time.perf_counter()]
        self._changed = threading.Condition()
        prompt = np.arange(256, dtype="<i4").tobytes()
        engine.submit("turn", prompt, b"", SamplingParams(3_000), self._on_chunk)

    def longest_gap(self, tokens: int) -> float:
        """Wait for so many more tokens; return the longest gap between two since the last call."""
        with self._changed:
            wanted = len(self._times) + tokens
            if not self._changed.wait_for(lambda: len(self._times) >= wanted, _DEADLINE_S):
                raise TimeoutError(f"no {tokens} tokens within {_DEADLINE_S:g} s")
            times, self._times = self._times, self._times[-1:]
        return max(np.diff(times[1:]))  # without the wait for the first token of all

    def _on_chunk(self, chunk: TokenChunk) -> None:
        with self._changed:
            self._times.append(time.perf_counter())
            self._changed.notify_all()


def timed(work: Callable[[], object]) -> Took:
    """Return what the work takes."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Took(time.perf_counter() - wall, time.process_time() - cpu)
