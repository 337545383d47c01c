"""Configuration of a rehearsal: that of a run, with modelled devices in place of its own."""

from pathlib import Path

from seamlessflow.config import RunConfig, WorkerSection
from seamlessflow.infra.network.addresses import HOST
from seamlessflow.infra.variables import place_in, variable
from seamlessflow.reports.simulated_workers import with_own_model

CLOCK = "clock"
"""Name of the engine, and of the trainer's backend, that follow the device model."""
_ENGINE = {"engine": CLOCK}
_TRAINER = {"backend": CLOCK, "device": "cpu", "host": HOST}


def rehearsed(
    config: RunConfig, out: Path | None = None, steps: int | None = None, scale: float | None = None
) -> RunConfig:
    """Return the configuration of a rehearsal of `config`, which leaves the run's directory alone.

    It keeps its number of workers, devices and processes, pacing, tasks and agent.
    """
    model = with_own_model(config).device_model
    run = config.run
    further = {
        name: section.model_copy(update={"trainer": section.trainer.model_copy(update=_TRAINER)})
        for name, section in config.policies.items()
    }
    updates = {
        "out": config.out / "rehearsal" if out is None else out,
        "workers": tuple(_modelled(worker) for worker in config.workers),
        "policies": further,
        "rollout": config.rollout.model_copy(update=_ENGINE),
        "trainer": config.trainer.model_copy(update=_TRAINER),
        "run": run if steps is None else run.model_copy(update={"steps": steps}),
        "device_model": model if scale is None else model.model_copy(update={"scale": scale}),
        # Never on the cluster that the run will use: its log would be resumed there.
        "kafka": None,
    }
    return config.model_copy(update=updates)


def _modelled(worker: WorkerSection) -> WorkerSection:
    """Return the worker on this machine without a real device, whatever its own variables say."""
    variables = worker.environment
    wanted = {("rollout", name): value for name, value in _ENGINE.items()}
    wanted |= {("trainer", name): value for name, value in _TRAINER.items()}
    said = {variable(path): value for path, value in wanted.items() if place_in(variables, path)}
    return worker.model_copy(
        update={"node": "", "device": None, "environment": {**variables, **said}}
    )
