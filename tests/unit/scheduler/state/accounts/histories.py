"""Random legal histories of a few workers on `control`."""

from dataclasses import dataclass, field
from random import Random

from seamlessflow.schemas.records import Record
from tests.builders.records import control

PROCESSES = ("rollout", "train")


@dataclass
class PastWorker:
    """A worker of a history, and the times in which it was there."""

    name: str
    devices: int
    processes: set[str] = field(default_factory=set)
    role: str = ""
    """The role that it has, or is taking while `pending`."""
    pending: bool = False
    state: str = "free"
    """`free`, `paused` or `training`."""
    reported_ms: int = 0
    since_ms: int = 0
    presences: list[tuple[int, int]] = field(default_factory=list)

    def device_ms(self, start_ms: int, end_ms: int) -> int:
        """Return the device time in the window, whatever the worker did."""
        spans = [*self.presences, *([(self.since_ms, end_ms)] if self.processes else [])]
        return self.devices * sum(
            max(0, min(end_ms, till_ms) - max(start_ms, from_ms)) for from_ms, till_ms in spans
        )


class History:
    """Records of `control`; each `act` adds one that may follow."""

    def __init__(self, choices: Random) -> None:
        self.now_ms = 0
        self.records: list[Record] = [control.claimed()]
        self.workers = [PastWorker(f"w{n}", choices.randint(1, 4)) for n in range(3)]
        self._choices = choices
        self._assignment = 0

    def act(self) -> None:
        """Let some time pass, then let one thing happen to one worker."""
        self.now_ms += self._choices.choice((0, 1, 7, 50, 400))
        worker = self._choices.choice(self.workers)
        missing = [name for name in PROCESSES if name not in worker.processes]
        if missing and (not worker.processes or self._choices.random() < 0.3):
            self._join(worker, self._choices.choice(missing))
        else:
            acts = (self._lose, self._assign, self._go_on, self._go_on, self._report)
            self._choices.choice(acts)(worker)

    def _add(self, record: Record) -> None:
        self.records.append(record)

    def _join(self, worker: PastWorker, process: str) -> None:
        if not worker.processes:
            worker.since_ms = self.now_ms
        worker.processes.add(process)
        devices = tuple(range(worker.devices))
        self._add(control.joined(worker.name, process, at_ms=self.now_ms, devices=devices))

    def _lose(self, worker: PastWorker) -> None:
        process = self._choices.choice(sorted(worker.processes))
        worker.processes.discard(process)
        if worker.role == process or not worker.processes:
            worker.role, worker.pending, worker.state = "", False, "free"
        if not worker.processes:
            worker.presences.append((worker.since_ms, self.now_ms))
        self._add(control.lost(worker.name, process, at_ms=self.now_ms))

    def _assign(self, worker: PastWorker) -> None:
        self._assignment += 1
        worker.role = self._choices.choice(sorted(worker.processes))
        worker.pending, worker.state = True, "free"
        role, number = worker.role, self._assignment
        self._add(control.assigned(worker.name, role, number, at_ms=self.now_ms))

    def _go_on(self, worker: PastWorker) -> None:
        """Take the role, time out, or do something in it."""
        if worker.pending:
            worker.pending = False
            if self._choices.random() < 0.2:
                self._add(control.timed_out(worker.name, worker.role, at_ms=self.now_ms))
                worker.role = ""
            else:
                self._add(control.acquired(worker.name, worker.role, at_ms=self.now_ms))
        elif worker.role == "rollout":
            paused = worker.state == "paused"
            make = control.resumed if paused else control.paused
            self._add(make(worker=worker.name, at_ms=self.now_ms))
            worker.state = "free" if paused else "paused"
        elif worker.role == "train":
            if worker.state == "training":
                self._add(control.completed(policy=worker.name, at_ms=self.now_ms))
                worker.state = "free"
            else:
                self._add(control.started([worker.name], policy=worker.name, at_ms=self.now_ms))
                worker.state = "training"

    def _report(self, worker: PastWorker) -> None:
        stretch_ms = self.now_ms - worker.reported_ms
        self._add(
            control.usage(
                worker.name,
                "train",
                from_ms=worker.reported_ms,
                at_ms=self.now_ms,
                training_ms=stretch_ms,
                computing_ms=self._choices.randint(0, stretch_ms),
            )
        )
        decoding_ms = self._choices.randint(0, stretch_ms)
        self._add(
            control.usage(
                worker.name,
                from_ms=worker.reported_ms,
                at_ms=self.now_ms,
                decoding_ms=decoding_ms,
                idle_ms=self._choices.randint(0, stretch_ms - decoding_ms),
                full_batch_ms=self._choices.randint(0, stretch_ms),
                recomputing_ms=self._choices.randint(0, stretch_ms),
            )
        )
        worker.reported_ms = self.now_ms
