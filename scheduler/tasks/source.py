"""Tasks by draw number and by id. Pure.

The order in a pass over the tasks is a pseudo-random permutation, one element at a time. Its n-th
place follows only from seed, pass and n, without a list of all places. So a scheduler that takes
over continues where the last one stopped, in constant time and memory. The permutation is a Feistel
network with four rounds over the next power of four. Results beyond the task count are permuted
again until they fall below it (cycle walking: Black and Rogaway, "Ciphers with arbitrary finite
domains", 2002).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from seamlessflow.schemas.records import ForkedPrefix

SHUFFLED = ("shuffled", 1)
"""Name and version of the order; another version may draw other tasks for the same figures."""
_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One task."""

    task_id: str
    payload: bytes
    """The whole object as JSON with sorted keys."""
    metadata: Mapping[str, str]
    samples: int | None = None
    """Number of samples in this task's groups; None: as many as the run's settings say."""
    min_samples: int | None = None
    """Least samples to train such a group at its deadline; None: as in the settings."""
    turn_limit: int | None = None
    """Number of turns that this task's sessions may have; None: as many as the settings say."""
    tags: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    """Roles in its episodes; none: all that the run has, if it has any."""
    fork: ForkedPrefix | None = None
    """Beginning of its sessions, taken from a recorded one; None: they begin empty."""
    split: str = ""
    """Name of the task's set; empty: the name in the settings."""


@dataclass(frozen=True, slots=True)
class SamplingRule:
    """Rule by which a task was chosen, as `GroupAdmitted` records it."""

    name: str = ""
    version: int = 0
    figures: Mapping[str, float] = field(default_factory=dict)
    source_sha256: str = ""
    """Hash of the file with a user's own rule."""


AGAIN = SamplingRule("again", 1)
"""Choice of a task whose last group was dropped."""


@dataclass(frozen=True, slots=True)
class TaskSource:
    """Tasks in an order that depends only on the seed."""

    rows: Sequence[TaskRow]
    find: Callable[[str], TaskRow | None]
    """Returns the task with an id, or None if there is none."""
    seed: int = 0
    shuffled: bool = True
    name: str = "train"
    """The source's name, under which its statistics are kept."""

    def draw(self, number: int) -> TaskRow:
        """Return the task for the `number`-th draw; each pass over the tasks has its own order."""
        return self.rows[self.place(number)]

    def place(self, number: int) -> int:
        """Return the `number`-th draw's place in `rows`."""
        finished_passes, place = divmod(number, len(self.rows))
        if not self.shuffled:
            return place
        return shuffled_place(place, len(self.rows), self.seed, finished_passes)

    def rule(self, number: int) -> SamplingRule:
        """Return the rule for the `number`-th draw, with its figures."""
        name, version = SHUFFLED if self.shuffled else ("in_order", 1)
        figures: dict[str, float] = {"draw": number, "tasks": len(self.rows)}
        if self.shuffled:
            figures["seed"] = self.seed
        return SamplingRule(name, version, figures)


def listed(rows: Sequence[TaskRow], name: str = "train") -> TaskSource:
    """Return a source with tasks in memory, in list order."""
    return TaskSource(rows, {row.task_id: row for row in rows}.get, shuffled=False, name=name)


def shuffled_place(number: int, count: int, seed: int, finished_passes: int) -> int:
    """Return the place of the draw `number` in a pass; both are below `count`.

    Different draws in a pass have different places, which are the same in every Python release.
    """
    half_bits = max(1, ((count - 1).bit_length() + 1) // 2)
    mask = (1 << half_bits) - 1
    while True:  # fewer than four times on average: `count` is more than a quarter of the domain
        left = number >> half_bits
        right = number & mask
        for turn in range(_ROUNDS):
            mixed = _hash(f"{seed}/{finished_passes}/{turn}/{right}")
            left, right = right, left ^ (mixed & mask)
        number = left << half_bits | right
        if number < count:
            return number


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())
