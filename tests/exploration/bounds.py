"""The bounds of an exploration: the workers, the steps, and how many faults of each kind."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The size of a model."""

    strategy: str = "colocated"
    workers: int = 2
    """The first one only rolls out under `multiplexed`."""
    steps: int = 1
    crashes: int = 0
    """Processes that end at any moment and are started again."""
    takeovers: int = 0
    """Schedulers that claim the next epoch while the one before still runs."""
    silences: int = 0
    """Processes that live but are silent until the scheduler counts them as lost."""
    deadlines: int = 0
    """Times at which a deadline passes although those it concerns are only slow."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the workers."""
        return tuple("abcdefgh"[: self.workers])

    def trains(self, worker: str) -> bool:
        """Return True if the worker has both tags."""
        return self.strategy != "multiplexed" or worker != "a"

    @property
    def trainers(self) -> int:
        """Return the number of workers that can train, all of which make the gang."""
        return sum(map(self.trains, self.names))

    def less(self, kind: str) -> "Bounds":
        """Return the bounds with one fault of a kind less."""
        left: int = getattr(self, kind)
        return replace(self, **{kind: left - 1})  # type: ignore[arg-type]
