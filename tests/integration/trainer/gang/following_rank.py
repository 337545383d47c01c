"""A rank that follows the leader until it has rested three times, or an update has failed.

python -m tests.integration.trainer.gang.following_rank MODEL PLACE DTYPE [SETTINGS as JSON]
"""

import json
import sys
from pathlib import Path

from seamlessflow.infra.errors import ExitStatus
from seamlessflow.trainer.backends.backend import UpdateFailed
from seamlessflow.trainer.backends.fsdp_backend import FsdpBackend
from seamlessflow.trainer.settings import TrainerSection
from tests.builders.trainer.gangs.meetings import line


def settings(rank: int, dtype: str, more: str = "{}") -> TrainerSection:
    """Return the settings of two ranks on the CPU; `more` is a JSON object of others."""
    gang = {"backend": "fsdp2", "rank": rank, "ranks": 2}
    return TrainerSection.model_validate(
        {**gang, "device": "cpu", "threads": 1, "dtype": dtype} | json.loads(more)
    )


def main() -> None:
    model, place, *arguments = sys.argv[1:]
    backend = FsdpBackend(Path(model), settings(1, *arguments), line(place, 1))
    try:
        for _ in range(3):
            backend.follow()
    except UpdateFailed as failed:
        print(failed, file=sys.stderr)
        sys.exit(ExitStatus.LASTING)
    backend.close()


if __name__ == "__main__":
    main()
