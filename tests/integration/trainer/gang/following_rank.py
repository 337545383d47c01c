"""A rank that follows the leader until it has rested three times, or an update has failed.

python -m tests.integration.trainer.gang.following_rank MODEL RENDEZVOUS DTYPE [SETTINGS as JSON]
"""

import json
import sys
from pathlib import Path

from infra.errors import ExitStatus
from trainer.backends.backend import UpdateFailed
from trainer.backends.fsdp_backend import FsdpBackend
from trainer.settings import TrainerSection


def settings(rank: int, rendezvous: str, dtype: str, more: str = "{}") -> TrainerSection:
    """Return the settings of two ranks on the CPU; `more` is a JSON object of others."""
    gang = {"backend": "fsdp2", "rank": rank, "ranks": 2, "rendezvous": rendezvous}
    return TrainerSection.model_validate(
        {**gang, "device": "cpu", "threads": 1, "dtype": dtype} | json.loads(more)
    )


def main() -> None:
    backend = FsdpBackend(Path(sys.argv[1]), settings(1, *sys.argv[2:]))
    try:
        for _ in range(3):
            backend.follow()
    except UpdateFailed as failed:
        print(failed, file=sys.stderr)
        sys.exit(ExitStatus.LASTING)
    backend.close()


if __name__ == "__main__":
    main()
