"""A further rank of a worker, started by its first.

python -m trainer.ranks.follower SOCKET PLACE, where its gang meets.
"""

import socket
import sys

from infra.settings import load
from trainer.backends.meeting.facts import gang_facts
from trainer.backends.meeting.meeting import Coming, came
from trainer.ranks.chosen_backend import chosen_backend
from trainer.ranks.further import follow_orders
from trainer.settings import TrainerSettings


def main() -> None:
    """Join the gang, then obey until the socket ends."""
    settings = load(TrainerSettings)
    connection = socket.socket(fileno=int(sys.argv[1]))
    trainer, facts = settings.trainer, gang_facts(settings)
    coming = Coming(worker=trainer.worker, rank=trainer.rank, devices=1, facts=facts)
    backend = chosen_backend(trainer)
    follow_orders(backend(settings.policy.model, trainer, came(sys.argv[2], coming)), connection)


if __name__ == "__main__":
    main()
