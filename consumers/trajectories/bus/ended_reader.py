"""Reading of the sessions that former owners of partitions ended, beside the takeover.

Running sessions do not wait for it: only commands whose session is not open need it, and calls by
name that may repeat one of an earlier session.
"""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from seamlessflow.consumers.trajectories.sessions.ended import HASH_BYTES, EndedRead
from seamlessflow.infra.errors import KafkaUnavailable
from seamlessflow.infra.kafka.unreadable import Letter
from seamlessflow.infra.kafka.whole_topic import read_partitions
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.codec import UndecodableRecord, decode
from seamlessflow.schemas.records import EndedSession, Record
from seamlessflow.schemas.topics import ENDED_SESSIONS

_log = logging.getLogger(__name__)
_CLOSE_TIMEOUT_S = 5
_AGAIN_S = 1.0
Found = Mapping[int, EndedRead]
"""The ended sessions by partition; one without any may lack."""
Bury = Callable[[Sequence[Letter]], None]


def decode_ended(value: bytes) -> Record:
    """Return the ended session that `value` encodes. Raises `UndecodableRecord`."""
    record = decode(value)
    if not isinstance(record, EndedSession):
        raise UndecodableRecord(f"{type(record).__name__} is not an ended session")
    for name, hashes in (("calls", record.calls), ("named_calls", record.named_calls)):
        if len(hashes) % HASH_BYTES:
            size = len(hashes)
            raise UndecodableRecord(f"{name} have {size} bytes, no multiple of {HASH_BYTES}")
    return record


class EndedReader:
    """Reads partitions of `ended_sessions` to their end, each time in a thread of its own.

    `bury` and `failed` run in that thread.
    """

    def __init__(
        self, kafka: KafkaSettings, bury: Bury, failed: Callable[[BaseException], None]
    ) -> None:
        self._kafka = kafka
        self._bury = bury
        self._failed = failed
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []

    def read(self, numbers: Sequence[int], deliver: Callable[[Found], None]) -> None:
        """Call `deliver` with all that these partitions hold now. Returns at once."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(
            target=self._run, args=(numbers, deliver), name="ended sessions reader", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def close(self) -> None:
        """End the threads; blocks for 5 s at most."""
        self._closing.set()
        deadline = time.monotonic() + _CLOSE_TIMEOUT_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self, numbers: Sequence[int], deliver: Callable[[Found], None]) -> None:
        while not self._closing.is_set():
            try:
                ended = self._read(numbers)
            except KafkaUnavailable as error:
                if not self._closing.wait(_AGAIN_S):
                    _log.warning("cannot read %s yet, trying again: %s", ENDED_SESSIONS.name, error)
            except BaseException as error:
                # The owner ends the process with it; otherwise commands would wait for ever.
                return self._failed(error)
            else:
                return deliver(ended)

    def _read(self, numbers: Sequence[int]) -> Found:
        ended: defaultdict[int, EndedRead] = defaultdict(EndedRead)
        places = [(ENDED_SESSIONS.name, number) for number in numbers]
        for item in read_partitions(
            self._kafka,
            places,
            stopping=self._closing.is_set,
            bury=self._bury,
            folds=True,
            decode=decode_ended,
        ):
            if isinstance(item.record, EndedSession):
                ended[item.partition].apply(item.record)
        return ended
