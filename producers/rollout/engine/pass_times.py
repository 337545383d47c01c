"""Times of an engine's passes for the accounts of device time: useful, or spent again.

A decode pass over few rows costs nearly as much as one over many. So a pass is worth its rows times
a row's cost in a full pass. A straight line through the passes so far gives that cost.

A server's client sees no passes, so it estimates them from its streams. The wait for a call's first
tokens counts as its prefill, divided by the streams that the server had then. All other time with
streams counts as decode passes over all streams. Their number follows from the tokens that arrived.
"""

_KEPT = 1 - 1 / 1024
"""Weight that earlier passes keep when one is added: the line shows the last thousand or so."""

LONGEST_S = 0.25
"""Tokens that arrive within this time are counted together: streams bring them in bursts."""


class DecodeCosts:
    """A line through decode passes' seconds over their rows, by weighted least squares."""

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
        """Return a row's seconds in a full pass.

        As long as all passes had equally many rows, a full pass counts as no longer than they were.
        It is better to count too little time as useful than too much.
        """
        rows = self._rows / self._weight
        seconds = self._seconds / self._weight
        variance = self._rows_squared / self._weight - rows * rows
        slope = 0.0
        if variance > 1e-6 * rows * rows:
            slope = (self._products / self._weight - rows * seconds) / variance
            slope = min(max(slope, 0.0), seconds / rows)  # no pass costs less than nothing
        return (seconds + slope * (self._full - rows)) / self._full


class PassTimes:
    """Seconds of passes since the engine began. Its thread adds; any thread reads the sums."""

    def __init__(self, full: int) -> None:
        """Account for passes; a full pass has `full` rows."""
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


class StreamTimes:
    """Time that passes take on a server with up to `full` streams at once. One thread."""

    def __init__(self, full: int) -> None:
        self.passes = PassTimes(full)
        self._full = full
        self._since_s = 0.0
        self._prefill_s = 0.0
        self._tokens = 0

    def begin(self, now_s: float) -> None:
        """Begin to count: the first stream is sent after a time without any."""
        self._since_s = now_s
        self._prefill_s = 0.0
        self._tokens = 0

    def prefilled(self, waited_s: float, streams: int) -> float:
        """Count a call's share of its wait for first tokens as prefill, not decode; return it."""
        seconds = waited_s / self._running(streams)
        self._prefill_s += seconds
        return seconds

    def sampled(self, tokens: int, streams: int, now_s: float) -> None:
        """Count tokens that have arrived while the server had so many streams."""
        self._tokens += tokens
        passed_s = now_s - self._since_s
        if passed_s < LONGEST_S or not self._tokens:
            return
        rows = self._running(streams)
        passes = max(1, round(self._tokens / rows))
        decode_s = max(0.0, passed_s - self._prefill_s)
        for _ in range(passes):
            self.passes.add_decode(rows, decode_s / passes)
        self.begin(now_s)

    def _running(self, streams: int) -> int:
        return min(max(1, streams), self._full)
