"""A rank that follows the leader until it has rested three times.

python -m tests.integration.trainer.gang_rank MODEL RENDEZVOUS DTYPE LOSS
"""

import json
import sys
from pathlib import Path

from trainer.backends.fsdp_backend import FsdpBackend
from trainer.settings import TrainerSection


def settings(rank: int, rendezvous: str, dtype: str, loss: str) -> TrainerSection:
    """Return the settings of two ranks on the CPU; `loss` is JSON."""
    gang = {"backend": "fsdp2", "rank": rank, "ranks": 2, "rendezvous": rendezvous}
    own = {"device": "cpu", "threads": 1, "dtype": dtype, "loss": json.loads(loss)}
    return TrainerSection.model_validate({**gang, **own})


def main() -> None:
    backend = FsdpBackend(Path(sys.argv[1]), settings(1, *sys.argv[2:]))
    for _ in range(3):
        backend.follow()
    backend.close()


if __name__ == "__main__":
    main()
