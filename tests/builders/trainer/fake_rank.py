"""The first rank of a gang, without weights: a test replies for it."""

import socket
from queue import Queue

from seamlessflow.trainer.backends.backend import Machine
from seamlessflow.trainer.backends.calls import Arrays, GangCall, GangMessage, Hello, Reply, Welcome
from seamlessflow.trainer.link import Channel

LIMIT_S = 120.0


class FakeRank:
    """A connection to a `GangBackend`."""

    def __init__(self, address: str, token: str) -> None:
        """Connect, and say the token."""
        host, _, port = address.rpartition(":")
        self._channel = Channel(socket.create_connection((host, int(port)), LIMIT_S))
        self._calls: Queue[GangCall] = Queue()
        machine = Machine("cpu none", 1, "0")
        hello = Hello(token=token, worker="w", machine=machine, dtype="float32", layout="padded")
        self._channel.send(hello)
        self.welcome: Welcome | None = None
        """The answer; None if the connection was closed instead."""
        try:
            answer, _ = self._channel.receive(LIMIT_S)
        except ConnectionError:
            return
        assert isinstance(answer, Welcome)
        self.welcome = answer
        self._channel.start(self._deliver, lambda reason: None)

    def next_call(self) -> GangCall:
        """Wait for the next call."""
        return self._calls.get(timeout=LIMIT_S)

    def reply(self, reply: Reply) -> None:
        """Send a reply."""
        self._channel.send(reply)

    def close(self) -> None:
        """End the connection without a word."""
        self._channel.close()

    def _deliver(self, message: GangMessage, _: Arrays) -> None:
        assert isinstance(message, GangCall)
        self._calls.put(message)
