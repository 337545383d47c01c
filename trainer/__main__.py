"""The trainer of a policy: `python -m trainer`, configured by `SEAMLESSFLOW_*`."""

import threading

from infra.process import run_sync
from infra.settings import load
from trainer.settings import TrainerSettings


def main() -> None:
    """Read the settings, resume from what is recorded, and train until all steps are done."""
    settings = load(TrainerSettings)

    # After the settings: `--help` and a wrong setting need neither torch nor Kafka.
    from trainer.bootstrap import observed

    def train(stop: threading.Event) -> None:
        with observed(settings, stop.is_set) as trainer:
            trainer.run(stop)

    run_sync(train, finite=True)


if __name__ == "__main__":
    main()
