"""A worker's further rank; the worker's first rank starts it.

python -m seamlessflow.trainer.ranks.follower SOCKET PLACE; its gang meets at PLACE.
"""

import socket
import sys

from seamlessflow.infra.settings import load
from seamlessflow.trainer.backends.meeting import Coming, came, gang_facts
from seamlessflow.trainer.ranks.further import follow_orders
from seamlessflow.trainer.ranks.torch_devices import chosen_backend
from seamlessflow.trainer.settings import TrainerSettings


def main() -> None:
    """Join the gang, then obey until the socket ends."""
    settings = load(TrainerSettings)
    connection = socket.socket(fileno=int(sys.argv[1]))
    trainer = settings.trainer
    facts = gang_facts(settings)
    coming = Coming(worker=trainer.worker, rank=trainer.rank, devices=1, facts=facts)
    backend = chosen_backend(trainer)
    follow_orders(backend(settings.policy.model, trainer, came(sys.argv[2], coming)), connection)


if __name__ == "__main__":
    main()
