"""A policy's trainer: `python -m seamlessflow.trainer`, configured by `SEAMLESSFLOW_*`."""

import threading

from seamlessflow.infra.process import run_sync
from seamlessflow.infra.settings import load
from seamlessflow.trainer.settings import TrainerSettings


def main() -> None:
    """Read the settings, resume from the records, and train until all steps are done."""
    settings = load(TrainerSettings)

    # After the settings: `--help` and a wrong setting need neither torch nor Kafka.
    from seamlessflow.trainer.bootstrap import observed

    def train(stop: threading.Event) -> None:
        with observed(settings, stop.is_set) as trainer:
            trainer.run(stop)

    run_sync(train, finite=True)


if __name__ == "__main__":
    main()
