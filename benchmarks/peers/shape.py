"""Shapes of work that both sides do: tasks, turns, limits and rewards. Needs only Python.

Both environments import this module, so that no side has other tasks or other rewards.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Message = dict[str, str]
WARM_UP = 1
"""Steps before the measured ones."""
ROWS = 8
"""Sequences in a pass by TRL's trainer, its default; a step's sessions are a multiple."""
FURTHER_STEPS = 3
"""Most steps in a run that are not measured: warm-up, and the lag on both ends."""
_LARGEST = 20
MOST_TASKS = 2 * _LARGEST**2
"""Count of different first questions."""
_NUMBER = re.compile(r"-?\d+")
_ENDING = "Answer with the number."


@dataclass(frozen=True, slots=True)
class Shape:
    """A step's work, the same for each side."""

    turns: int
    """Turns in a session."""
    groups: int
    """Groups in a step."""
    group_size: int
    """Sessions in a group."""
    max_tokens: int
    """Most tokens in an answer."""
    max_context: int
    """Most tokens in a session."""

    @property
    def sessions(self) -> int:
        """A step's session count."""
        return self.groups * self.group_size


SHAPES: Mapping[str, Shape] = {
    "single": Shape(turns=1, groups=8, group_size=8, max_tokens=64, max_context=256),
    "turns": Shape(turns=8, groups=4, group_size=4, max_tokens=24, max_context=640),
}
"""Shapes by their names in `--shape`."""


@dataclass(frozen=True, slots=True)
class Sum:
    """A number, and what is added to it turn by turn."""

    start: int
    changes: tuple[int, ...]

    def questions(self) -> list[str]:
        """Return what the agent says in each turn."""
        first, *others = self.changes
        sign = "+" if first >= 0 else "-"
        return [
            f"What is {self.start} {sign} {abs(first)}? {_ENDING}",
            *(f"{_change(change)} {_ENDING}" for change in others),
        ]

    def answers(self) -> list[int]:
        """Return each turn's right number."""
        return [self.start + sum(self.changes[: turn + 1]) for turn in range(len(self.changes))]

    def reward(self, texts: Sequence[str]) -> float:
        """Return the share of turns whose last number is right."""
        pairs = zip(self.answers(), texts, strict=False)
        right = sum(str(answer) == last_number(text) for answer, text in pairs)
        return right / len(self.changes)


def _change(change: int) -> str:
    return f"Add {change} to that." if change >= 0 else f"Subtract {-change} from that."


def last_number(text: str) -> str:
    """Return a text's last whole number, empty if it has none."""
    numbers: list[str] = _NUMBER.findall(text)
    return numbers[-1] if numbers else ""


@dataclass(frozen=True, slots=True)
class Work:
    """A side's work in one run."""

    model: str
    """Hugging Face directory."""
    shape: Shape
    steps: int
    """Steps that are measured; a warm-up step comes before them."""
    threads: int
    """Threads for a torch operation."""
    lr: float
    seed: int
    out: str
    """Directory for all that the run writes."""

    def tasks(self, further_steps: int = 0) -> list[Sum]:
        """Return all steps' tasks in order, which follow only from the seed.

        No two tasks begin with the same question.
        """
        source = random.Random(self.seed)
        signed = [number for number in range(-_LARGEST, _LARGEST + 1) if number]
        pairs = [(start, first) for start in range(1, _LARGEST + 1) for first in signed]
        source.shuffle(pairs)
        count = self.shape.groups * (WARM_UP + self.steps + further_steps)
        return [
            Sum(start, (first, *source.choices(signed, k=self.shape.turns - 1)))
            for start, first in pairs[:count]
        ]


def work_of(orders: Mapping[str, Any]) -> Work:
    """Return the work from which `asdict` made these values."""
    return Work(**{**orders, "shape": Shape(**orders["shape"])})
