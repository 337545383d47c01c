"""A role change on one device: a trainer gives its memory back, an engine sleeps and wakes."""

from contextlib import closing

from benchmarks.gpu.part import Asked, Figures, free_bytes, meets, timed
from benchmarks.gpu.steps import some_chains, step, write_model
from seamlessflow.producers.rollout.torch_engine.engine import TorchEngine, TorchEngineSettings
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.settings import TrainerSection

LEFT_MIB = 256
"""Most that a role may leave on the device: kernels and their workspaces stay."""
_MIB = 1024 * 1024


def run(asked: Asked) -> Figures:
    """Return each move's seconds, and what stays on the device behind it."""
    model = write_model(asked.directory / "model", asked.small)
    backend = TorchBackend(model, TrainerSection(device=asked.device, dtype="bfloat16"))
    backend.load(None, 0)
    update = step(some_chains(4, 128, 32), 1024)
    # Kernels and the device's context are no role's memory.
    backend.acquire()
    backend.train(update)
    first_release_s = timed(backend.release, asked.device)
    before = free_bytes(asked.device)
    taken = timed(backend.acquire, asked.device)
    held = before - free_bytes(asked.device)
    backend.train(update)
    release_s = timed(backend.release, asked.device)
    left = before - free_bytes(asked.device)
    figures: dict[str, object] = {
        "trainer_takes_s": round(taken, 3),
        "trainer_gives_first_s": round(first_release_s, 3),
        "trainer_gives_s": round(release_s, 3),
        "trainer_holds_mib": held // _MIB,
        "trainer_leaves_mib": left // _MIB,
    }
    settings = TorchEngineSettings(device=asked.device, dtype="bfloat16", max_length=1024)
    with closing(TorchEngine.from_directory(model, settings)) as engine:
        engine.pause("abort")
        figures["engine_holds_mib"] = (before - left - free_bytes(asked.device)) // _MIB
        figures["engine_sleeps_s"] = round(timed(engine.sleep, asked.device), 3)
        asleep = (before - left - free_bytes(asked.device)) // _MIB
        figures["engine_leaves_mib"] = asleep
        figures["engine_wakes_s"] = round(timed(engine.wake, asked.device), 3)
        engine.resume()
    meets(left // _MIB < LEFT_MIB, "the trainer leaves too much", figures)
    meets(asleep < LEFT_MIB, "the engine leaves too much", figures)
    return figures
