"""Warning about transactions for a process that waits for committed offsets."""

import logging

from seamlessflow.infra.deadline import Stopping
from seamlessflow.infra.errors import KafkaRefused, KafkaUnavailable, SettingsRejected
from seamlessflow.infra.kafka.transactions.hanging import TransactionLookup
from seamlessflow.infra.settings import KafkaSettings

WARN_EVERY_S = 30.0
"""Time without committed offsets after which their reader looks for the reason."""
REMEDY = "seamlessflow topics transactions --end"
_log = logging.getLogger(__name__)


def warn_of_hanging(kafka: KafkaSettings, stopping: Stopping) -> None:
    """Log each transaction that hangs, with the remedy; nothing if there is none.

    An embedded broker ends it by itself a few seconds later.
    """
    lookup = TransactionLookup(kafka, stopping)
    try:
        for transaction in lookup.find():
            if transaction.hangs:
                _log.warning("no committed offsets come: %s; `%s` ends it", transaction, REMEDY)
    except (KafkaUnavailable, KafkaRefused, SettingsRejected) as error:
        _log.warning("no committed offsets come, and no look at transactions: %s", error)
    finally:
        lookup.close()
