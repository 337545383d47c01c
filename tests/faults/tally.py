"""Tally of the faults that a run survived, and of the time until it was well again. Pure."""

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from tests.faults.faults import MOMENTS, OTHERS, Fault, Kind

_PAIR = "two at once"


class Tally:
    """Recoveries by what was hit: seconds from the kill or the thaw until the run was well."""

    def __init__(self) -> None:
        self._recoveries: dict[tuple[str, str], list[float]] = defaultdict(list)

    def add(self, faults: Sequence[Fault], took_s: float) -> None:
        """Count one recovery."""
        what = (_kind_of(faults[0].process), faults[0].kind) if len(faults) == 1 else (_PAIR, "")
        self._recoveries[what].append(took_s)

    def lines(self) -> list[str]:
        """Return one line for each kind of process and of fault."""
        order = [(process, kind) for process in MOMENTS for kind in Kind]
        return [
            f"{process} {kind}: {len(took)} times, well again after "
            f"{median(took):.1f} s, at most {max(took):.1f} s"
            for process, kind in [*order, (_PAIR, "")]
            if (took := self._recoveries[process, kind])
        ]


def _kind_of(process: str) -> str:
    return next((of for of, other in OTHERS.items() if other == process), process)
