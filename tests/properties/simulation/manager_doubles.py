"""Doubles of the threads and connections of a trajectory manager."""

from collections.abc import Callable, Collection, Mapping, Sequence

from seamlessflow.consumers.trajectories.bus.committer import Job
from seamlessflow.consumers.trajectories.bus.outbox import Echoes
from seamlessflow.consumers.trajectories.bus.readers import Found
from seamlessflow.consumers.trajectories.bus.request_ends import RequestBounds
from seamlessflow.consumers.trajectories.matching.match import PromptRenderer
from seamlessflow.consumers.trajectories.sessions.ended import EndedRead
from seamlessflow.infra.kafka.client import Received
from seamlessflow.schemas.codec import encode
from seamlessflow.schemas.records import EndedSession, PolicyWeights
from seamlessflow.schemas.topics import ENDED_SESSIONS, REQUESTS, SESSIONS
from tests.properties.simulation.topics import Topics


class SteppedReaders:
    """A double of the reading threads; requests to them wait for their next poll."""

    def __init__(self, topics: Topics, echoes: Echoes) -> None:
        self.positions: dict[int, int] = {}
        self.paused: set[int] = set()
        self._topics = topics
        self._echoes = echoes
        self._told: list[Callable[[], None]] = []
        self._asked: list[Callable[[], None]] = []

    def add_sessions(self, offsets: Mapping[int, int], added: Callable[[], None]) -> None:
        """Read these partitions also."""

        def add() -> None:
            self.positions.update({number: max(0, start) for number, start in offsets.items()})
            added()

        self._told.append(add)

    def read_ended(self, numbers: Sequence[int], deliver: Callable[[Found], None]) -> None:
        """Report what these partitions of `ended_sessions` hold when it is carried out."""

        def read() -> None:
            ended = {number: EndedRead() for number in numbers}
            for number in numbers:
                for received in self._topics.records[ENDED_SESSIONS.name, number]:
                    if isinstance(received.record, EndedSession):
                        ended[number].apply(received.record)
            deliver(ended)

        self._asked.append(read)

    def remove_sessions(self, numbers: list[int]) -> None:
        """Stop reading these partitions."""

        def remove() -> None:
            for number in numbers:
                self.positions.pop(number, None)

        self._told.append(remove)

    def ask_for_bounds(
        self, numbers: Sequence[int], answer: Callable[[RequestBounds], None]
    ) -> None:
        """Report start and end of partitions of `requests` when it is carried out."""

        def measure() -> None:
            records = self._topics.records
            answer({number: (0, len(records[REQUESTS.name, number])) for number in numbers})

        self._asked.append(measure)

    def pause(self, topic: str, numbers: Collection[int], on: bool) -> None:
        """Poll nothing of these partitions until it is called with False."""
        if topic == SESSIONS.name:
            self.paused = self.paused | set(numbers) if on else self.paused - set(numbers)

    def poll(self, most: int) -> list[Received]:
        """Return new records of `sessions`, decoded as the manager's reader does."""
        batch: list[Received] = []
        for number, start in self.positions.items():
            if number in self.paused:
                continue
            records = self._topics.read((SESSIONS.name, number), start, most)
            self.positions[number] = start + len(records)
            batch += map(self._read, records)
        return batch

    def obey(self) -> None:
        """Carry out the requests to the thread of `sessions`."""
        actions, self._told = self._told, []
        for action in actions:
            action()

    def answer(self) -> None:
        """Answer the requests to the thread of `requests`."""
        asked, self._asked = self._asked, []
        for action in asked:
            action()

    def _read(self, received: Received) -> Received:
        record = self._echoes.decode(encode(received.record))
        assert record == received.record
        return received._replace(record=record)


class SteppedRenderers:
    """The simulation's renderer for every policy."""

    def __init__(self, renderer: PromptRenderer) -> None:
        self._renderer = renderer

    def prepare(self, policy: PolicyWeights) -> None:
        """Do nothing: the renderer exists already."""

    def for_policy(self, policy: PolicyWeights) -> PromptRenderer:
        """Return the renderer of a policy."""
        return self._renderer


class SteppedCommitter:
    """A double of the thread with the transactional producer."""

    def __init__(self, finish: Callable[[], bool]) -> None:
        self.job: Job | None = None
        self.done: Callable[[bool], None] = lambda took: None
        self.idle = _Idle(finish)

    def submit(self, job: Job, done: Callable[[bool], None]) -> None:
        """Keep the job until the simulation lets it be committed."""
        assert self.job is None, "one job at a time"
        self.job, self.done = job, done


class _Idle:
    def __init__(self, finish: Callable[[], bool]) -> None:
        self._finish = finish

    def wait(self, timeout_s: float) -> bool:
        """End the transaction, which needs nothing of the main loop that waits for it."""
        return self._finish()
