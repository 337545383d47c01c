"""Time of a vLLM server's passes, as far as its streams show it.

The client sees no passes, so this is approximate. The wait for a call's first tokens counts as its
prefill, divided by the streams that the server had then. All other time in which there were streams
counts as decode passes over all of them. There are as many passes as the tokens that arrived need.
"""

from seamlessflow.producers.rollout.engine.pass_times import PassTimes

LONGEST_S = 0.25
"""Time over which arriving tokens are put together to passes: streams bring them in bursts."""


class StreamTimes:
    """Time of the passes of a server that runs up to `full` streams at once. One thread."""

    def __init__(self, full: int) -> None:
        self.passes = PassTimes(full)
        self._full = full
        self._since_s = 0.0
        self._prefill_s = 0.0
        self._tokens = 0

    def begin(self, now_s: float) -> None:
        """Begin to count: the first stream is sent, behind a time without any."""
        self._since_s, self._prefill_s, self._tokens = now_s, 0.0, 0

    def prefilled(self, waited_s: float, streams: int) -> float:
        """Take the wait for a call's first tokens out of the time of decode passes; return it."""
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
