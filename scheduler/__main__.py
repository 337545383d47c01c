"""The scheduler: `python -m scheduler`. Settings: `SEAMLESSFLOW_{RUN,SCHEDULER,PACING}__*`."""

import sys

from infra.process import run_sync
from infra.settings import load
from scheduler.settings import SchedulerSettings


def main() -> None:
    """Serves until asked to end, the run is finished, or another scheduler took over (status 1)."""
    settings = load(SchedulerSettings)

    from scheduler.controller import Superseded, serve

    try:
        run_sync(lambda stop: serve(settings, stop))
    except Superseded as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
