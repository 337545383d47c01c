"""Watch for transactions that a restart of the embedded broker left without an end.

Called by `broker.py`. It writes the marker that Kafka had decided on (`infra/kafka/transactions`).
Readers of committed records, and managers that wait for their offsets, then go on.
"""

import logging
import threading

from seamlessflow.infra.errors import KafkaRefused, KafkaUnavailable
from seamlessflow.infra.kafka.transactions.hanging import TransactionLookup
from seamlessflow.infra.settings import KafkaSettings

_log = logging.getLogger(__name__)
_LOOK_EVERY_S = 5.0
_CLOSE_S = 10.0


class TransactionWatch:
    """Thread that looks every few seconds, from the start of a broker until it is closed."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._kafka = kafka
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="transaction watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, which may wait for an answer."""
        self._closing.set()
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        lookup = TransactionLookup(self._kafka, self._closing.is_set, all_prefixes=True)
        while not self._closing.wait(_LOOK_EVERY_S):
            try:
                self._look(lookup)
            except (KafkaUnavailable, KafkaRefused) as error:
                _log.debug("transactions cannot be looked at: %s", error)  # it starts, or ends
        lookup.close()

    def _look(self, lookup: TransactionLookup) -> None:
        for transaction in lookup.find():
            if transaction.hangs:
                lookup.end(transaction)
                _log.warning("a restart of the broker left it, now it is ended: %s", transaction)
