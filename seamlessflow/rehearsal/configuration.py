"""Configuration of a rehearsal: that of a run, with modelled devices in place of its own. Pure."""

from pathlib import Path

from seamlessflow.config import RunConfig

CLOCK = "clock"
"""Name of the engine, and of the trainer's backend, that follow the device model."""


def rehearsed(
    config: RunConfig, out: Path | None = None, steps: int | None = None, scale: float | None = None
) -> RunConfig:
    """Return the configuration of a rehearsal of `config`, which leaves the run's directory alone.

    It keeps its number of workers, devices and processes, pacing, tasks and agent.
    """
    workers = tuple(one.model_copy(update={"device": None}) for one in config.workers)
    model = config.device_model
    run = config.run
    updates = {
        "out": config.out / "rehearsal" if out is None else out,
        "workers": workers,
        "rollout": config.rollout.model_copy(update={"engine": CLOCK}),
        "trainer": config.trainer.model_copy(update={"backend": CLOCK, "device": "cpu"}),
        "run": run if steps is None else run.model_copy(update={"steps": steps}),
        "device_model": model if scale is None else model.model_copy(update={"scale": scale}),
        # Never on the cluster that the run will use: its log would be resumed there.
        "kafka": None,
    }
    return config.model_copy(update=updates)
