"""What decisions depend on and what they are."""

from collections.abc import Callable
from dataclasses import dataclass, field

from consumers.trajectories.decisions.fleet import Fleet
from consumers.trajectories.matching.chat import PromptRenderer
from schemas.records import PolicyWeights, Record


@dataclass(frozen=True, slots=True)
class Context:
    """All that a decision depends on beside the session."""

    fleet: Fleet
    renderer: Callable[[PolicyWeights], PromptRenderer]
    partition: int
    epoch: int
    now_ms: int
    no_progress_ms: int
    """A turn without output for this long is given to another worker."""
    used: Callable[[str], bool] = lambda session_id: False
    """Whether a session of this id was opened before."""
    owner_since_ms: int = 0
    """When this manager claimed the partition; answers that came before may not have been told."""


@dataclass(slots=True)
class Decision:
    """Events for `sessions` and, by slot, records for `prompts`, each in order."""

    events: list[Record] = field(default_factory=list)
    prompts: list[tuple[int, Record]] = field(default_factory=list)
    decide_again: bool = False
    """Whether the command is to be decided anew once the events were read back."""

    def extend(self, other: "Decision") -> None:
        """Adds what another decision wants behind this one."""
        self.events += other.events
        self.prompts += other.prompts
