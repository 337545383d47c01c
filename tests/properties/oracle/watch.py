"""A check of I1 at each record: an event is on the log before an engine or an agent sees it."""

import numpy as np

from seamlessflow.infra.kafka.client import Received
from seamlessflow.schemas import records as r
from seamlessflow.schemas.topics import REPLIES, SESSIONS
from tests.properties.simulation.engine import Generation


class Watch:
    """The check; raises `AssertionError` at once."""

    def __init__(self) -> None:
        self._started: set[str] = set()
        self._dispatched: set[tuple[str, int]] = set()
        self._sampled: set[float] = set()
        self._messages: set[tuple[str, bytes]] = set()

    def arrived(self, received: Received) -> None:
        """Apply a record that arrived on a topic."""
        if received.topic == SESSIONS.name:
            self._logged(received.record)
        elif received.topic == REPLIES.name:
            self._replied(received.record)

    def asked(self, generation: Generation) -> None:
        """Check a request to an engine."""
        turn_id, _, dispatch = generation.request_id.rpartition("/")
        assert turn_id in self._started, f"I1: {turn_id} reached an engine before the log"
        assert (turn_id, int(dispatch)) in self._dispatched, f"I1: {generation.request_id}"

    def _logged(self, event: r.Record) -> None:
        match event:
            case r.TurnStarted():
                self._started.add(event.turn_id)
            case r.TurnDispatched():
                self._dispatched.add((event.turn_id, event.dispatch))
            case r.TurnProgressed() | r.TurnInterrupted() | r.TurnCompleted():
                self._sampled.update(np.frombuffer(event.logprobs, "<f4").tolist())
        if isinstance(event, r.TurnCompleted):
            self._messages.add((event.turn_id, event.message))

    def _replied(self, reply: r.Record) -> None:
        if isinstance(reply, r.ReplyDelta | r.ReplyFinished) and reply.logprobs is not None:
            logprobs = set(np.frombuffer(reply.logprobs, "<f4").tolist())
            assert logprobs <= self._sampled, f"I1: {reply.turn_id} was told before the log"
        if isinstance(reply, r.ReplyFinished) and reply.message is not None:
            logged = (reply.turn_id, reply.message) in self._messages
            assert logged, f"I1: the answer of {reply.turn_id} was told before the log"
