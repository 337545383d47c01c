"""Recorder of a golden log: `python -m tests.golden.record NAME` writes `logs/NAME.jsonl.xz`.

It runs the whole system of this working tree on a broker of its own, a few minutes long. Record one
when a release changes a schema or the fold, and keep all earlier ones.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.broker.programs import SHORT_LIVED
from tests.golden import conversations, disturbances, forks
from tests.golden.golden_log import LOGS, write
from tests.golden.recording_system import recording_system, records


def record(path: Path) -> None:
    """Record all conversations into a new file."""
    with (
        Broker(None, java=SHORT_LIVED) as broker,
        TemporaryDirectory() as directory,
        recording_system(broker.settings, Path(directory)) as system,
    ):
        conversations.all_of_them(system)
        forks.all_of_them(system)
        disturbances.all_of_them(system)
        write(path, records(system.running.kafka, len(system.opened)))


if __name__ == "__main__":
    record(LOGS / f"{sys.argv[1]}.jsonl.xz")
