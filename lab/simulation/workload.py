"""A simulated run's sessions: their turns, tokens, waits for tools, and rewards.

Every draw follows from the seed and the names of group, sample and attempt, never from event order.
So all compared strategies get the same sessions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from pydantic import Field

from seamlessflow.infra.device_model.settings import LengthsSection, drawn_tokens, log_normal


class WorkloadSection(LengthsSection):
    """The agents' work: turns, tokens, tools, rewards."""

    turns: float = Field(4, ge=1, le=100_000, description="Mean turns in a session")
    turns_spread: float = Field(
        0, ge=0, le=6, description="Standard deviation of the logarithm of a session's turns"
    )
    prompt_tokens: int = Field(1000, ge=1, description="Tokens in a session's first prompt")
    tool_tokens: int = Field(300, ge=0, description="Tokens that each later turn's prompt adds")
    start_s: float = Field(0, ge=0, description="Seconds from a task to its first turn")
    hop_s: float = Field(
        0, ge=0, description="Seconds that software adds to each turn on its way to the engine"
    )
    end_s: float = Field(
        0, ge=0, description="Seconds from a session's last turn until its group has it"
    )
    tool_s: float = Field(2, ge=0, description="Mean seconds between two turns in a session")
    tool_spread: float = Field(
        0.8, ge=0, le=6, description="Standard deviation of the logarithm of these seconds"
    )
    swing: float = Field(
        1,
        gt=0,
        description="Factor for turn_tokens in every second lot of `swing_groups` groups, for "
        "loads that flip",
    )
    swing_groups: int = Field(1, ge=1, description="Groups in such a lot")
    drift: float = Field(
        1, gt=0, description="Factor by which turn_tokens has changed after `drift_groups` groups"
    )
    drift_groups: int = Field(
        1000, ge=1, description="Groups over which turn_tokens drifts, each by the same factor"
    )
    success: float = Field(0.5, ge=0, le=1, description="Share of sessions with reward 1")
    drop_equal: bool = Field(
        False, description="Drop groups whose rewards are all equal, as the trainer's filter does"
    )


@dataclass(frozen=True, slots=True)
class SessionDraw:
    """A drawn session: by turn, the tokens added, the tokens sampled and the wait after it."""

    turns: tuple[tuple[int, int, float], ...]
    reward: float

    @property
    def sampled(self) -> int:
        """Tokens that it samples."""
        return sum(sampled for _, sampled, _ in self.turns)


@dataclass(frozen=True, slots=True)
class Workload:
    """The sessions by group, sample and attempt."""

    section: WorkloadSection
    seed: int = 0
    filtered: Callable[[str], bool] = lambda group: False
    """Returns True for a group that the trainer drops."""

    def draw(self, group: str, sample: int, attempt: int) -> SessionDraw:
        """Return an attempt's session."""
        section = self.section
        task = Random(f"{self.seed}/{group}")  # nosec B311 # repeatable draws
        draws = Random(f"{self.seed}/{group}/{sample}/{attempt}")  # nosec B311
        shared = task.gauss()
        count = max(1, round(log_normal(section.turns, section.turns_spread, draws.gauss())))
        factor = _length(section, _number(group))
        turns = []
        for number in range(count):
            sampled = drawn_tokens(section, shared, draws.gauss(), factor)
            wait_s = log_normal(section.tool_s, section.tool_spread, draws.gauss())
            added = section.tool_tokens if number else section.prompt_tokens
            turns.append((added, sampled, wait_s))
        return SessionDraw(tuple(turns), float(draws.random() < section.success))


def _number(group: str) -> int:
    """Return the number at the end of a group's name, or 0 without one."""
    number = group.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


def _length(section: WorkloadSection, number: int) -> float:
    """Return the factor on sampled tokens for the group with this number."""
    drifted: float = section.drift ** min(1.0, number / section.drift_groups)
    return drifted * section.swing if number // section.swing_groups % 2 else drifted
