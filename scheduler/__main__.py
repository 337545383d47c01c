"""The command `python -m scheduler`: one scheduler process.

Settings: `SEAMLESSFLOW_RUN__*`, `_SCHEDULER__*`, `_PACING__*` and `_EVALUATION__*`; `--help` lists
them.
"""

from infra.process import run_sync
from infra.settings import load
from scheduler.settings import SchedulerSettings


def main() -> None:
    """Run until a signal, the end of the run, or a takeover by another scheduler."""
    settings = load(SchedulerSettings)

    from scheduler.controller import serve

    run_sync(lambda stop: serve(settings, stop), finite=True)


if __name__ == "__main__":
    main()
