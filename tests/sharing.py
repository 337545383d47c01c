"""Sharing of the tests among processes: `pytest -n 3` has three, each with a broker of its own.

A file is one unit, so that its fixtures are made once. Whole runs and computations are one unit all
together: two of them at once would take the cores from each other and miss their deadlines.
"""

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


def unit_of(test: str) -> str:
    """Return the unit that a test belongs to, by its id."""
    file = test.partition("::")[0]
    return _TOGETHER if file.startswith(tuple(f"{folder}/" for folder in ALONE)) else file


def readable(sections: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return captured output without what UTF-8 lacks, which no process could send."""
    return [(name, text.encode(errors="backslashreplace").decode()) for name, text in sections]


class SharedByFile(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """Gives each process one unit at a time: whole runs first, then the largest.

    Whole runs take longest. Were they begun late, the other processes would wait for them.
    """

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)

    def _assign_work_unit(self, node: object) -> None:
        if _TOGETHER in self.workqueue:
            self.workqueue.move_to_end(_TOGETHER, last=False)
        super()._assign_work_unit(node)
