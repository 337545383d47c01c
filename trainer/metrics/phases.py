"""A step's seconds by phase, and its trained tokens per second, as metrics.

Called by the steps. Durations are metrics only: no hash that compares steps includes them.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import fmean

PHASES = ("batch_s", "wait_s", "annotate_s", "advantages_s", "update_s", "commit_s", "publish_s")
"""The phases' metrics, in order; together they cover nearly all of a step's time."""
_BATCH = PHASES[0]


@dataclass(slots=True)
class Phases:
    """A stopwatch for one step's phases."""

    clock: Callable[[], float] = time.monotonic
    """Returns the seconds since a fixed time."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Each phase's seconds, by its metric."""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time inside the block to a phase, unless it ends with an error."""
        began = self.clock()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + self.clock() - began


def token_rates(metrics: Mapping[str, float], epochs: int) -> dict[str, float]:
    """Return a step's trained tokens per second: over its updates, and over all its phases.

    A rate without measured seconds is left out. `epochs`: how often each token was computed.
    """
    tokens = metrics.get("tokens_trained", 0.0)
    update_s = metrics.get("update_s", 0.0)
    all_s = sum(metrics.get(name, 0.0) for name in PHASES)
    rates = {}
    if update_s > 0:
        rates["update_tokens_per_s"] = tokens * epochs / update_s
    if all_s > 0:
        rates["tokens_per_s"] = tokens / all_s
    return rates


def within(metrics: Mapping[str, float], most_s: float) -> dict[str, float]:
    """Return a step's metrics; `batch_s` is cut so that all phases sum to at most `most_s`.

    A trainer waits for its first batch from its own start, even while no session can begin.
    """
    others = sum(metrics.get(name, 0.0) for name in PHASES if name != _BATCH)
    batch_s = min(metrics.get(_BATCH, 0.0), max(0.0, most_s - others))
    return {**metrics, _BATCH: batch_s} if _BATCH in metrics else dict(metrics)


def mean_phases(steps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean seconds of each phase over the steps that measured all, and `tokens_per_s`.

    The rate divides all their tokens by all their seconds. Empty without a step.
    """
    measured = [step for step in steps if all(name in step for name in PHASES)]
    means = {name: fmean(step[name] for step in measured) for name in PHASES if measured}
    if all_s := sum(means.values()):
        means["tokens_per_s"] = fmean(step.get("tokens_trained", 0.0) for step in measured) / all_s
    return means
