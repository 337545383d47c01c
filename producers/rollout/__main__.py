"""A worker's rollout process: `python -m seamlessflow.producers.rollout`."""

from seamlessflow.infra.process import run_sync
from seamlessflow.infra.settings import load
from seamlessflow.producers.rollout.settings import RolloutSettings


def main() -> None:
    """Read the settings and serve until asked to end."""
    settings = load(RolloutSettings)

    # Not at the top: wrong settings and --help are reported before torch and Kafka are imported.
    from seamlessflow.producers.rollout.hosting import serve_all

    run_sync(lambda stop: serve_all(settings, stop))


if __name__ == "__main__":
    main()
