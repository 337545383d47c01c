"""The trajectory manager: `python -m seamlessflow.consumers.trajectories`."""

from seamlessflow.consumers.trajectories.settings import ManagerSettings
from seamlessflow.infra.process import run_sync
from seamlessflow.infra.settings import load


def main() -> None:
    """Load the settings and serve until the process is asked to end."""
    settings = load(ManagerSettings)

    from seamlessflow.consumers.trajectories.bootstrap import serve

    run_sync(lambda stop: serve(settings, stop.is_set))


if __name__ == "__main__":
    main()
