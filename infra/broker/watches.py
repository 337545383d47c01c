"""Watches over a running embedded broker: one over its log, one over hanging transactions.

A broker repeats its errors as long as they last, so its log is cut to a bound. The Java process
only appends to the file, so it need not stop for that. Transactions that a restart left open get
the marker that Kafka had decided on (`infra/kafka/transactions`). Then readers of committed records
go on, and so do managers that wait for their offsets. Called by `broker.py`.
"""

import logging
import os
import threading
from abc import ABC, abstractmethod
from pathlib import Path

from seamlessflow.infra.errors import KafkaRefused, KafkaUnavailable
from seamlessflow.infra.kafka.transactions.hanging import TransactionLookup
from seamlessflow.infra.settings import KafkaSettings

_log = logging.getLogger(__name__)
MIB = 1024 * 1024
MOST_BYTES = 8 * MIB
HEAD_BYTES = MIB
TAIL_BYTES = 3 * MIB
_LOOK_EVERY_S = 5.0
_CLOSE_S = 10.0


class _Watch(ABC):
    """Thread that looks every few seconds, from the start of a broker until it is closed."""

    def __init__(self, name: str) -> None:
        """Start the thread: a subclass calls this when its own fields are set."""
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, which may be in the middle of a look."""
        self._closing.set()
        self._thread.join(_CLOSE_S)

    @abstractmethod
    def _run(self) -> None:
        """Look until `_closing` is set."""


class LogWatch(_Watch):
    """Watch that cuts a log that grew too long, and once more when it is closed."""

    def __init__(self, file: Path, every_s: float = _LOOK_EVERY_S, most: int = MOST_BYTES) -> None:
        self._file = file
        self._every_s = every_s
        self._most = most
        super().__init__("broker log watch")

    def _run(self) -> None:
        closing = False
        while not closing:
            closing = self._closing.wait(self._every_s)
            try:
                cut(self._file, self._most)
            except OSError as error:
                _log.debug("%s cannot be cut: %s", self._file, error)


def cut(file: Path, most: int = MOST_BYTES) -> None:
    """Cut the middle out of a log longer than `most` bytes: its beginning and its end stay.

    It happens in place, so it needs no room on a full disk. Raises `OSError`.
    """
    size = file.stat().st_size if file.exists() else 0
    if size <= most:
        return
    head_bytes = most * HEAD_BYTES // MOST_BYTES
    tail_bytes = most * TAIL_BYTES // MOST_BYTES
    with file.open("r+b") as log:
        head = log.read(head_bytes)
        head = head[: head.rfind(b"\n") + 1] or head
        log.seek(size - tail_bytes)
        tail = log.read()
        tail = tail[tail.find(b"\n") + 1 :]
        left_out = size - len(head) - len(tail)
        log.seek(len(head))
        log.write(b"--- %d bytes of this log were cut out here ---\n" % left_out)
        log.write(tail)
        log.flush()
        os.ftruncate(log.fileno(), log.tell())


class TransactionWatch(_Watch):
    """Watch that ends hanging transactions."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._kafka = kafka
        super().__init__("transaction watch")

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
