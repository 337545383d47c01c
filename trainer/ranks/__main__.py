"""A worker's training process: `python -m seamlessflow.trainer.ranks`."""

import threading

from seamlessflow.infra.process import collect_seldom, run_sync
from seamlessflow.infra.settings import load
from seamlessflow.trainer.settings import TrainerSettings


def main() -> None:
    """Read the settings, join the gang, and train when the trainer says so until the run ends."""
    settings = load(TrainerSettings)

    # After the settings: `--help` and a wrong setting need neither torch nor Kafka.
    from seamlessflow.trainer.ranks.bootstrap import observed

    def train(stop: threading.Event) -> None:
        with observed(settings, stop.is_set) as ranks:
            # Torch's and the model's objects stay; each garbage collection over all takes 0.5 s.
            collect_seldom()
            ranks.run(stop)

    run_sync(train, finite=True)


if __name__ == "__main__":
    main()
