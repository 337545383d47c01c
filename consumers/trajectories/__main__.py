"""The trajectory manager: `python -m consumers.trajectories`."""

from consumers.trajectories.settings import ManagerSettings
from infra.process import run_sync
from infra.settings import load


def main() -> None:
    """Load the settings and serve until the process is asked to end."""
    settings = load(ManagerSettings)

    from consumers.trajectories.bootstrap import serve

    run_sync(lambda stop: serve(settings, stop.is_set))


if __name__ == "__main__":
    main()
