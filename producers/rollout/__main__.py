"""The rollout process of a worker: `python -m producers.rollout`."""

from infra.process import run_sync
from infra.settings import load
from producers.rollout.settings import RolloutSettings


def main() -> None:
    """Reads the settings and serves until asked to end."""
    settings = load(RolloutSettings)

    from infra.telemetry import telemetry
    from producers.rollout.bootstrap import build

    traces = telemetry(settings.telemetry, "rollout", settings.rollout.worker)
    try:
        run_sync(build(settings, traces).run)
    finally:
        traces.close()


if __name__ == "__main__":
    main()
