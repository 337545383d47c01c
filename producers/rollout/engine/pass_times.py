"""Time of an engine's passes, as the accounts of device time need it: useful, or spent again.

A decode pass over few rows costs nearly as much as one over many. A pass is therefore worth its
rows times a row's cost in a full pass. A straight line through the passes so far gives that cost.
"""

_KEPT = 1 - 1 / 1024
"""Weight of the passes so far when one is added: the line is that of the last thousand or so."""


class DecodeCosts:
    """A line through the seconds of decode passes over their rows, by weighted least squares."""

    def __init__(self, full: int) -> None:
        self._full = full
        self._weight = self._rows = self._seconds = self._rows_squared = self._products = 0.0

    def add(self, rows: int, seconds: float) -> None:
        """Add a pass."""
        self._weight = self._weight * _KEPT + 1
        self._rows = self._rows * _KEPT + rows
        self._seconds = self._seconds * _KEPT + seconds
        self._rows_squared = self._rows_squared * _KEPT + rows * rows
        self._products = self._products * _KEPT + rows * seconds

    def row_in_full_pass(self) -> float:
        """Return the seconds of a row in a full pass.

        As long as all passes had the same number of rows, a full pass is taken to last no longer
        than they did. It is better to count too little time as useful than too much.
        """
        rows, seconds = self._rows / self._weight, self._seconds / self._weight
        variance = self._rows_squared / self._weight - rows * rows
        slope = 0.0
        if variance > 1e-6 * rows * rows:
            slope = (self._products / self._weight - rows * seconds) / variance
            slope = min(max(slope, 0.0), seconds / rows)  # no pass costs less than nothing
        return (seconds + slope * (self._full - rows)) / self._full


class PassTimes:
    """Seconds of passes since the engine began. Its thread adds; any thread reads the sums."""

    def __init__(self, full: int) -> None:
        """Account for passes of which a full one has `full` rows."""
        self.full_batch_s = 0.0
        """Seconds that the same tokens would have taken in full passes."""
        self.recomputing_s = 0.0
        """Seconds spent on keys and values that were computed before."""
        self._costs = DecodeCosts(full)

    def add_decode(self, rows: int, seconds: float) -> None:
        """Account for a pass that sampled a token for each of its rows."""
        self._costs.add(rows, seconds)
        self.full_batch_s += rows * self._costs.row_in_full_pass()

    def add_prefill(self, seconds: float, again: float) -> None:
        """Account for a pass over prompts; `again`: the share of its tokens computed before."""
        self.full_batch_s += (1 - again) * seconds
        self.recomputing_s += again * seconds
