"""Kafka outages: which errors pass, which are refusals, and the wait for an outage's end.

Every request that must be answered is repeated with one `Outage`, by `cluster.py`, `producer.py`
and `reader.py`.
"""

import logging
import math
import time
from collections.abc import Callable

from confluent_kafka import KafkaError

from seamlessflow.infra.clock import Stopping
from seamlessflow.infra.errors import KafkaRefused, KafkaUnavailable
from seamlessflow.infra.settings import KafkaSettings

ASK_S = 1.0
"""Longest single request: between two requests, a wait notices that it must end."""
COMMIT_S = 150.0
"""Limit for committing offsets, above librdkafka's own: 60 s for an answer, then 45 s for a
coordinator. librdkafka may still wait for ever for a coordinator that was away."""
WITHOUT_LIMIT = math.inf
"""Limit for waits after the start: an outage is waited out, however long it is."""

NO_LEADER_YET = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
}
"""Errors for a topic created a moment ago, or from a broker that has just restarted."""
_NO_ANSWER = {
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._DESTROY_BROKER,  # its client gave up a broker that it will look for again
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.NOT_CONTROLLER,
}
_NO_COORDINATOR_YET = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.CONCURRENT_TRANSACTIONS,
    KafkaError._WAIT_COORD,
}
"""Errors from a cluster that has just started, or that moves a coordinator.
`KafkaError.retriable` knows them for transactions only."""
_PASSING = NO_LEADER_YET | _NO_ANSWER | _NO_COORDINATOR_YET
REFUSALS = {
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""Answers that stay the same however long a process waits: password, certificate, permission."""

_FIRST_LINE_S = 3.0
_LINE_EVERY_S = 30.0
_PAUSE_S = 0.1
_log = logging.getLogger(__name__)


class Outage:
    """One caller's wait, made just before its first request."""

    def __init__(
        self,
        settings: KafkaSettings,
        stopping: Stopping,
        limit_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin; `limit_s` None is `kafka.wait_s`."""
        self._servers = settings.bootstrap_servers
        self._stopping = stopping
        self.limit_s = settings.wait_s if limit_s is None else limit_s
        self._setting = "kafka.wait_s, SEAMLESSFLOW_KAFKA__WAIT_S" if limit_s is None else ""
        self._clock = clock
        self._began_s = clock()
        self._line_s = self._began_s + _FIRST_LINE_S

    @property
    def waited_s(self) -> float:
        """Time since the first request."""
        return self._clock() - self._began_s

    def endure(self, error: KafkaError) -> None:
        """Wait until the request that failed with `error` may be repeated.

        Raises `KafkaRefused` for an answer that stays the same. Raises `KafkaUnavailable` after the
        limit, when the process was asked to end, and for errors that do not pass.
        """
        if error.code() in REFUSALS:
            raise KafkaRefused(self._servers, error.str())
        over = self.waited_s >= self.limit_s or self._stopping()
        if over or not passes(error):
            waited_s = round(self.waited_s, 1)
            reason = error.str()
            raise KafkaUnavailable(self._servers, waited_s, reason, self._setting)
        self._report(error)
        time.sleep(_PAUSE_S)

    def endure_silence(self, missing: str) -> None:
        """Wait until the caller may look again for what has not come. Raises as `endure`."""
        self.endure(KafkaError(KafkaError._TIMED_OUT, missing))

    def _report(self, error: KafkaError) -> None:
        now_s = self._clock()
        if now_s < self._line_s:
            return
        self._line_s = now_s + _LINE_EVERY_S
        left_s = self.limit_s - self.waited_s
        left = "waiting without a limit" if math.isinf(left_s) else f"{left_s:.0f} s left"
        text = (
            "waiting for Kafka at %s (SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS): %s; %.0f s so far, %s"
        )
        _log.warning(text, self._servers, error.str(), self.waited_s, left)


def passes(error: KafkaError) -> bool:
    """Return whether the same request may succeed later."""
    return error.code() in _PASSING and not error.fatal()
