"""What stands for the threads and connections of a trajectory manager."""

from collections.abc import Callable, Mapping

from consumers.trajectories.bus.committer import Job
from consumers.trajectories.bus.echoes import Echoes
from consumers.trajectories.matching.prompt_renderer import PromptRenderer
from infra.kafka.client import Received
from schemas.codec import encode
from schemas.records import PolicyWeights
from schemas.topics import REQUESTS, SESSIONS
from tests.properties.simulation.topics import Topics


class StagedReaders:
    """Stands for the threads that read: what they are told waits for their next poll."""

    def __init__(self, topics: Topics, echoes: Echoes) -> None:
        self.positions: dict[int, int] = {}
        self._topics = topics
        self._echoes = echoes
        self._told: list[Callable[[], None]] = []
        self._asked: list[Callable[[], None]] = []

    def add_sessions(self, offsets: Mapping[int, int], added: Callable[[], None]) -> None:
        """Reads these as well."""

        def add() -> None:
            self.positions.update({number: max(0, start) for number, start in offsets.items()})
            added()

        self._told.append(add)

    def remove_sessions(self, numbers: list[int]) -> None:
        """Reads these no longer."""

        def remove() -> None:
            for number in numbers:
                self.positions.pop(number, None)

        self._told.append(remove)

    def ask_for_end(self, number: int, tell: Callable[[int], None]) -> None:
        """Tells where a partition of `requests` ends."""
        self._asked.append(lambda: tell(len(self._topics.records[REQUESTS.name, number])))

    def poll(self, most: int) -> list[Received]:
        """What is new on `sessions`, each record made of its bytes by who wrote it or anew."""
        batch: list[Received] = []
        for number, start in self.positions.items():
            found = self._topics.read((SESSIONS.name, number), start, most)
            self.positions[number] = start + len(found)
            batch += map(self._read, found)
        return batch

    def obey(self) -> None:
        """The thread of `sessions` does what it was told meanwhile."""
        told, self._told = self._told, []
        for action in told:
            action()

    def answer(self) -> None:
        """The thread of `requests` answers what it was asked."""
        asked, self._asked = self._asked, []
        for action in asked:
            action()

    def _read(self, received: Received) -> Received:
        record = self._echoes.decode(encode(received.record))
        assert record == received.record
        return received._replace(record=record)


class StagedRenderers:
    """The world's renderer for every policy."""

    def __init__(self, renderer: PromptRenderer) -> None:
        self._renderer = renderer

    def prepare(self, policy: PolicyWeights) -> None:
        """It is there already."""

    def of(self, policy: PolicyWeights) -> PromptRenderer:
        """The renderer of a policy."""
        return self._renderer


class StagedCommitter:
    """Stands for the thread with the transactional producer."""

    def __init__(self, finish: Callable[[], bool]) -> None:
        self.job: Job | None = None
        self.done: Callable[[bool], None] = lambda took: None
        self.idle = _Idle(finish)

    def submit(self, job: Job, done: Callable[[bool], None]) -> None:
        """Keeps it until the world lets it be committed."""
        assert self.job is None, "one job at a time"
        self.job, self.done = job, done


class _Idle:
    def __init__(self, finish: Callable[[], bool]) -> None:
        self._finish = finish

    def wait(self, timeout_s: float) -> bool:
        """The transaction needs nothing of the main loop, so it ends while that waits."""
        return self._finish()
