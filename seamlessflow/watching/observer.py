"""Observer of a run: folds `control` and `fleet` into its progress."""

from types import TracebackType
from typing import Self

from seamlessflow.infra.kafka.client import BEGINNING
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.kafka.unreadable import Unreadable
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.topics import CONTROL, FLEET
from seamlessflow.watching.progress import RunProgress

_POLL_S = 0.05


class Observer:
    """Reader of both topics, used from one thread. A context manager."""

    def __init__(self, settings: KafkaSettings, progress: RunProgress) -> None:
        self.progress = progress
        self._reader = Reader(settings, "launcher")

    def __enter__(self) -> Self:
        self._reader.assign({(CONTROL.name, 0): BEGINNING, (FLEET.name, 0): BEGINNING})
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._reader.close()

    def poll(self) -> RunProgress:
        """Fold in all records that have arrived; return the progress."""
        # Until a poll brings nothing: a resumed run has a long log to fold before it is up to date.
        while received := self._reader.poll(_POLL_S):
            for item in received:
                if isinstance(item.record, Unreadable):
                    self.progress.skipped.apply(item.topic, item.record)
                else:
                    self.progress.apply(item.record)
        return self.progress
