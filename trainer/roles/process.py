"""The parts of a trainer process that leader and followers share, and how they start and end.

Made by `trainer/bootstrap.py`. The loop, the follower, the device and the steps all work through
it. Its fields are used from the loop's thread; the heartbeat's thread reads `roles` and `status`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Never

from infra.inbox import Inbox
from infra.kafka.producer import Producer
from infra.kafka.reader_thread import ReaderThread
from infra.worker.activity import Activity, ActivityAccount
from schemas.records import (
    BatchReady,
    GroupDropped,
    GroupReady,
    Record,
    RunFinished,
    SampleFailed,
    StepSkipped,
    StepStarted,
)
from schemas.topics import CONTROL
from trainer.roles.gang_errors import GangBroken, GangMismatch
from trainer.roles.heartbeat import Heartbeat, TrainerStatus
from trainer.roles.roles import TrainerRoles
from trainer.settings import TrainerSettings
from trainer.work import Work

_OfPolicy = BatchReady | GroupDropped | GroupReady | RunFinished | SampleFailed | StepSkipped


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerProcess:
    """One trainer process, without its model."""

    settings: TrainerSettings
    producer: Producer
    roles: TrainerRoles
    status: TrainerStatus
    activity: ActivityAccount
    heartbeat: Heartbeat
    control: ReaderThread
    """Reads `control` into the inbox."""
    inbox: Inbox[Never]
    work: Work
    now_ms: Callable[[], int]

    def send(self, *records: Record) -> None:
        """Append records to `control`, under the policy that is trained."""
        policy = self.settings.run.policy
        for record in records:
            named = replace(record, policy=policy) if isinstance(record, _OfPolicy) else record
            self.producer.send(CONTROL.name, named)

    def enter(self, state: str, activity: Activity) -> None:
        """Set what heartbeats and activity records report from now on."""
        self.status.state = state
        self.activity.enter(activity, self.now_ms())

    def check_gang(self, started: StepStarted | None = None) -> None:
        """Raise `GangBroken`, or `GangMismatch` if the gang of `started` has the wrong size."""
        ranks = self.settings.trainer.ranks
        if ranks > 1 and self.roles.broken_by:
            raise GangBroken(self.roles.broken_by)
        if started is not None and len(started.workers) != ranks:
            raise GangMismatch(started.workers, ranks)

    @contextmanager
    def running(self, *readers: ReaderThread) -> Iterator[None]:
        """Start the reader of `control` and `readers`; when the body ends, close everything.

        After an error the last heartbeat has the state `failed`.
        """
        started = [self.control, *readers]
        try:
            for reader in started:
                reader.start()
            yield
        except BaseException:
            self.status.state = "failed"
            raise
        finally:
            # A reader that waits for room in the inbox would never end.
            self.inbox.close()
            for reader in started:
                reader.close()
            self.work.close()
            # The last heartbeat needs the producer.
            self.heartbeat.close()
            self.producer.close()
