"""The command `python -m seamlessflow.scheduler`: one scheduler process.

Settings: `SEAMLESSFLOW_RUN__*`, `_SCHEDULER__*`, `_PACING__*` and `_EVALUATION__*`; `--help` lists
them.
"""

from seamlessflow.infra.process import run_sync
from seamlessflow.infra.settings import load
from seamlessflow.scheduler.settings import SchedulerSettings


def main() -> None:
    """Run until a signal, the run's end, or a takeover by another scheduler."""
    settings = load(SchedulerSettings)

    from seamlessflow.scheduler.bootstrap import serve

    run_sync(lambda stop: serve(settings, stop), finite=True)


if __name__ == "__main__":
    main()
