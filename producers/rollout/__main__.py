"""The rollout process of a worker: `python -m producers.rollout`."""

from infra.process import run_sync
from infra.settings import load
from producers.rollout.settings import RolloutSettings


def main() -> None:
    """Reads the settings and serves until asked to end."""
    settings = load(RolloutSettings)

    from producers.rollout.restarts import serve

    run_sync(lambda stop: serve(settings, stop))


if __name__ == "__main__":
    main()
