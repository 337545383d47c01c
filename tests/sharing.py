"""Sharing of the tests among processes: `pytest -n 3` has three, each with a broker of its own.

A file is one unit, so that its fixtures are made once. Whole runs and computations are one unit all
together: two of them at once would take the cores from each other and miss their deadlines.
"""

import math
from collections.abc import Iterable

from xdist.scheduler import LoadScopeScheduling

ALONE = (
    "tests/e2e",
    "tests/faults",
    "tests/golden",
    "tests/integration/trainer/gang",
    "tests/integration/trainer/memory",
)
"""Folders of which never two tests run at once."""
_TOGETHER = "alone"
"""The unit that they are."""
_COSTS = {"tests/integration/": 13, "tests/properties/": 4}
"""Time of a test of these folders, in the time of one of another."""


def unit_of(test: str) -> str:
    """Return the unit that a test belongs to, by its id."""
    file = test.partition("::")[0]
    return _TOGETHER if file.startswith(tuple(f"{folder}/" for folder in ALONE)) else file


def cost_of(unit: str, tests: int) -> float:
    """Return about what a unit of so many tests takes. Whole runs take longest."""
    if unit == _TOGETHER:
        return math.inf
    return tests * next((cost for folder, cost in _COSTS.items() if unit.startswith(folder)), 1)


def readable(sections: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return captured output without what UTF-8 lacks, which no process could send."""
    return [(name, text.encode(errors="backslashreplace").decode()) for name, text in sections]


class SharedByFile(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """Gives each process one unit at a time, the longest first, so that all end at one time."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)

    def _assign_work_unit(self, node: object) -> None:
        longest = max(self.workqueue, key=lambda unit: cost_of(unit, len(self.workqueue[unit])))
        self.workqueue.move_to_end(longest, last=False)
        super()._assign_work_unit(node)
