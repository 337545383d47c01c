"""What stands for the threads and connections of a trajectory manager."""

from collections.abc import Callable, Iterable, Mapping

from consumers.trajectories.committer import Job
from consumers.trajectories.matching import PromptRenderer
from infra.kafka import Received
from schemas.records import PolicyWeights
from tests.properties.topics import Place, Topics


class StagedReader:
    """Stands for the thread that reads `sessions`: what it is told waits for its next poll."""

    def __init__(self, topics: Topics) -> None:
        self.positions: dict[Place, int] = {}
        self._topics = topics
        self._calls: list[Callable[[StagedReader], None]] = []

    def call(self, action: Callable[["StagedReader"], None]) -> None:
        """Done between two polls."""
        self._calls.append(action)

    def add(self, starts: Mapping[Place, int]) -> None:
        """Reads these as well."""
        self.positions.update({place: max(0, start) for place, start in starts.items()})

    def remove(self, places: list[Place]) -> None:
        """Reads these no longer."""
        for place in places:
            self.positions.pop(place, None)

    def poll(self, most: int) -> list[Received]:
        """What is new."""
        batch: list[Received] = []
        for place, start in self.positions.items():
            found = self._topics.read(place, start, most)
            self.positions[place] = start + len(found)
            batch += found
        return batch

    def obey(self) -> None:
        """Does what it was told meanwhile."""
        calls, self._calls = self._calls, []
        for action in calls:
            action(self)


class StagedRequests:
    """Stands for the thread that reads `requests`, as far as the manager asks it something."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._calls: list[Callable[[StagedRequests], None]] = []

    def call(self, action: Callable[["StagedRequests"], None]) -> None:
        """Done between two polls."""
        self._calls.append(action)

    def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """Offsets behind the last records."""
        return {place: len(self._topics.records[place]) for place in places}

    def obey(self) -> None:
        """Does what it was told meanwhile."""
        calls, self._calls = self._calls, []
        for action in calls:
            action(self)


class StagedRenderers:
    """The world's renderer for every policy."""

    def __init__(self, renderer: PromptRenderer) -> None:
        self._renderer = renderer

    def hear(self, policy: PolicyWeights) -> None:
        """It is there already."""

    def of(self, policy: PolicyWeights) -> PromptRenderer:
        """The renderer of a policy."""
        return self._renderer


class StagedCommitter:
    """Stands for the thread with the transactional producer."""

    def __init__(self, finish: Callable[[], bool]) -> None:
        self.job: Job | None = None
        self.idle = _Idle(finish)

    def submit(self, job: Job) -> None:
        """Keeps it until the world lets it be committed."""
        assert self.job is None, "one job at a time"
        self.job = job


class _Idle:
    def __init__(self, finish: Callable[[], bool]) -> None:
        self._finish = finish

    def wait(self, timeout_s: float) -> bool:
        """The transaction needs nothing of the main loop, so it ends while that waits."""
        return self._finish()
