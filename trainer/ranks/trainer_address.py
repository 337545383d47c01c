"""The way of a rank to its trainer: the address is in the trainer's heartbeat on `fleet`."""

import logging
import socket
import time
from collections.abc import Callable

from infra.errors import SeamlessFlowError
from infra.kafka.outage import Stopping
from infra.kafka.reader import Reader
from schemas.records import Record, TrainerHeartbeat
from trainer.link.channel import Channel
from trainer.link.messages import Hello, Welcome

LIMIT_S = 600.0
_CONNECT_S = 10.0
_POLL_S = 0.2
_log = logging.getLogger(__name__)


class TrainerAbsent(SeamlessFlowError):
    """No trainer that can be reached."""

    lasting = False

    def __init__(self, policy: str, waited_s: float, reason: str) -> None:
        self.policy = policy
        self.waited_s = waited_s
        self.reason = reason
        text = f"no trainer (python -m trainer) of policy {policy} in {waited_s:.0f} s"
        super().__init__(f"{text}: {reason}" if reason else text)


def connected(
    reader: Reader,
    fold: Callable[[Record], None],
    policy: str,
    hello: Callable[[str], Hello],
    stopping: Stopping,
) -> Channel:
    """Return a channel to the policy's trainer; read `fleet` until one answers.

    `fold` gets each record read, `hello` makes the first message of a token. Raises
    `TrainerAbsent`, at once when `stopping`.
    """
    began, reason = time.monotonic(), ""
    while not stopping() and time.monotonic() - began < LIMIT_S:
        newest: TrainerHeartbeat | None = None
        for received in reader.poll(_POLL_S):
            record = received.record
            fold(record)
            if isinstance(record, TrainerHeartbeat) and record.policy == policy:
                newest = None if record.ending else record
        # `fleet` keeps the last heartbeat of a trainer that was killed: the next one is tried then.
        if newest is not None:
            try:
                return _opened(newest, hello(newest.token))
            except (OSError, ValueError) as error:
                reason = f"{newest.address}: {error}"
                _log.debug("no answer of a trainer at %s", reason)
    raise TrainerAbsent(policy, time.monotonic() - began, reason)


def _opened(trainer: TrainerHeartbeat, hello: Hello) -> Channel:
    host, _, port = trainer.address.rpartition(":")
    channel = Channel(socket.create_connection((host, int(port)), _CONNECT_S))
    try:
        channel.send(hello)
        answer, _ = channel.receive(_CONNECT_S)
        if not isinstance(answer, Welcome) or answer.trainer != trainer.trainer:
            raise ValueError("another program answers there")
    except BaseException:
        channel.close()
        raise
    return channel
