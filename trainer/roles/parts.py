"""The parts that the trainer and a training process have in common, and how they begin and end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from seamlessflow.infra.inbox import Inbox
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader_thread import ReaderThread
from seamlessflow.infra.worker.roles import ENDED
from seamlessflow.schemas.records import (
    BatchReady,
    GroupDropped,
    GroupReady,
    Record,
    RunFinished,
    SampleFailed,
    StepSkipped,
)
from seamlessflow.schemas.topics import CONTROL
from seamlessflow.trainer.roles.gang_watch import GangWatch
from seamlessflow.trainer.roles.heartbeat import Heartbeat, TrainerStatus
from seamlessflow.trainer.settings import TrainerSettings
from seamlessflow.trainer.work import Work

_OfPolicy = BatchReady | GroupDropped | GroupReady | RunFinished | SampleFailed | StepSkipped


@dataclass(frozen=True, slots=True)
class Wake:
    """An item of the inbox that only ends the wait of the loop: a piece of work is finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessParts:
    """One process, without its model and without what it decides."""

    settings: TrainerSettings
    producer: Producer
    gang: GangWatch
    status: TrainerStatus
    heartbeat: Heartbeat
    control: ReaderThread
    """Reads `control` (a training process: `fleet` also) into the inbox."""
    inbox: Inbox[Wake]
    work: Work
    now_ms: Callable[[], int]

    def wake(self) -> None:
        """End the wait of the loop, from any thread."""
        self.inbox.post(Wake())

    def send(self, *records: Record) -> None:
        """Append records to `control`, under the policy that is trained."""
        policy = self.settings.run.policy
        for record in records:
            named = replace(record, policy=policy) if isinstance(record, _OfPolicy) else record
            self.producer.send(CONTROL.name, named)

    def give_up(self) -> None:
        """End a process that could not be assembled; its last heartbeat says so."""
        self.status.state = "failed"
        self.heartbeat.close()
        self.producer.close()

    @contextmanager
    def running(self, *readers: ReaderThread, end: Callable[[], None]) -> Iterator[None]:
        """Start the reader of `control` and `readers`; when the body ends, close everything.

        `end` is called first: it ends what the work thread may wait for. The last heartbeat has the
        state `ended`, after an error `failed`.
        """
        started = [self.control, *readers]
        try:
            for reader in started:
                reader.start()
            yield
        except BaseException:
            self.status.state = "failed"
            raise
        else:
            self.status.state = ENDED
        finally:
            end()
            # A reader that waits for room in the inbox would never end.
            self.inbox.close()
            for reader in started:
                reader.close()
            self.work.close()
            # The last heartbeat needs the producer.
            self.heartbeat.close()
            self.producer.close()
