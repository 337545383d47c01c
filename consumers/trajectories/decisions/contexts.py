"""What decisions about a partition depend on at this moment."""

from collections.abc import Callable
from dataclasses import dataclass

from consumers.trajectories.decisions.decision import Context
from consumers.trajectories.decisions.fleet import Fleet
from consumers.trajectories.matching.chat import PromptRenderer
from consumers.trajectories.sessions.partition import Partition
from infra.clock import now_ms
from schemas.records import PolicyWeights


@dataclass(frozen=True, slots=True)
class Contexts:
    """Makes contexts."""

    fleet: Fleet
    renderer: Callable[[PolicyWeights], PromptRenderer]
    no_progress_ms: int
    clock: Callable[[], int] = now_ms

    def now(self, partition: Partition) -> Context:
        """The context of a decision that is made now."""
        return Context(
            self.fleet,
            self.renderer,
            partition.number,
            partition.epoch,
            self.clock(),
            self.no_progress_ms,
            partition.used,
            partition.owner_since_ms,
        )
