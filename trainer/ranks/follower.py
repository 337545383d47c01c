"""A further rank of a worker, started by its first: `python -m trainer.ranks.follower SOCKET`."""

import socket
import sys

from infra.settings import load
from trainer.ranks.chosen_backend import chosen_backend
from trainer.ranks.further import follow_orders
from trainer.settings import TrainerSettings


def main() -> None:
    """Join the gang, then obey until the socket ends."""
    settings = load(TrainerSettings)
    connection = socket.socket(fileno=int(sys.argv[1]))
    backend = chosen_backend(settings.trainer)(settings.policy.model, settings.trainer)
    follow_orders(backend, connection)


if __name__ == "__main__":
    main()
