"""The trainer process of a worker: `python -m trainer`, configured by `SEAMLESSFLOW_*`."""

from infra.process import run_sync
from infra.settings import load
from trainer.settings import TrainerSettings


def main() -> None:
    """Read the settings, resume from what is recorded, and train until all steps are done."""
    settings = load(TrainerSettings)

    # After the settings: `--help` and a wrong setting need neither torch nor Kafka.
    from infra.telemetry.tracing import telemetry
    from trainer.bootstrap import build

    traces = telemetry(settings.telemetry, "trainer", settings.trainer.worker)
    try:
        run_sync(lambda stop: build(settings, traces).run(stop))
    finally:
        traces.close()


if __name__ == "__main__":
    main()
