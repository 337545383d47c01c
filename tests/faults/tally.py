"""Tally of the faults that a run survived, and of the time until it was well again. Pure."""

from collections import defaultdict
from statistics import median


class Tally:
    """Seconds from the end of a fault until all was well, by what was hit and how."""

    def __init__(self) -> None:
        self._recoveries: dict[str, list[float]] = defaultdict(list)

    def add(self, what: str, took_s: float) -> None:
        """Count one recovery."""
        self._recoveries[what].append(took_s)

    def lines(self) -> list[str]:
        """Return one line for each kind of fault."""
        return [
            f"{what}: {len(took)} times, well again after {median(took):.1f} s, "
            f"at most {max(took):.1f} s"
            for what, took in sorted(self._recoveries.items())
        ]
