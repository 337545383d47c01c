"""Division of the tests among the processes of pytest-xdist, by where they stand."""

from xdist.scheduler import LoadScopeScheduling

WHOLE_RUNS = tuple(
    f"tests/{folder}/" for folder in ("agents", "calibration", "e2e", "faults", "golden")
)


class ByPlace(LoadScopeScheduling):  # type: ignore[misc]
    """The tests of a file stay in one process, and whole runs follow each other in one.

    A whole run starts eight processes: two at a time would wait for each other's imports.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "whole runs" if file.startswith(WHOLE_RUNS) else file
