"""A continuous batch's clock: converts time into decode passes, and back. Pure.

All rows advance by one token a pass. A row ends when the clock has counted as many passes as it
needs tokens. A pass takes `b + k C` seconds for the total context C. With n rows, C grows by n each
pass. So m passes take (b + k C) m + k n m^2 / 2. Prompts that wait for their KV are computed before
the next pass. While the rows stay the same, nothing needs to be counted.
"""

from dataclasses import dataclass
from math import sqrt

from seamlessflow.infra.device_model.rates import Rates


@dataclass(slots=True, eq=False)
class BatchClock:
    """An engine's rows, at `now_s`. Rows may change only after `advance`."""

    rates: Rates
    now_s: float = 0.0
    passes: float = 0.0
    """Passes so far."""
    rows: int = 0
    context: float = 0.0
    """Tokens in all rows."""
    prompt_s: float = 0.0
    """Time that waiting prompts still take."""
    first_s: float = 0.0
    """The part of `prompt_s` for KV that is computed for the first time."""
    tokens: float = 0.0
    """Tokens sampled so far."""
    busy_s: float = 0.0
    """Time so far with at least one row."""
    full_batch_s: float = 0.0
    """Time that tokens and prompts so far would have taken in full batches."""
    recomputing_s: float = 0.0
    """Time so far spent on KV that had been computed before."""

    def advance(self, now_s: float) -> None:
        """Count the passes until `now_s`."""
        spent_s = now_s - self.now_s
        self.now_s = now_s
        if self.rows:
            self.busy_s += spent_s
        if self.prompt_s > 0:
            spent_s -= self._compute(min(self.prompt_s, spent_s))
        if spent_s > 0 and self.rows:
            self._count(self._passes_in(spent_s))

    def skip(self, now_s: float) -> None:
        """Move to `now_s` without a pass."""
        self.now_s = now_s

    def seconds_until(self, passes: float) -> float:
        """Return the time from now until the clock has counted `passes`."""
        ahead = max(0.0, passes - self.passes)
        rates = self.rates
        rows = self.rows
        growth = rates.context_s * rows * ahead / 2
        base = rates.batch_s(rows) + rates.context_s * self.context
        return self.prompt_s + ahead * (base + growth)

    def add(self, context: float, prompt_s: float, first_s: float) -> None:
        """Add a row with `context` tokens. Its prompt takes `prompt_s`, `first_s` of it new."""
        self.rows += 1
        self.context += context
        self.pend(prompt_s, first_s)

    def pend(self, prompt_s: float, first_s: float = 0.0) -> None:
        """Compute KV for `prompt_s` before the next pass, `first_s` of it for new tokens."""
        self.prompt_s += prompt_s
        self.first_s += first_s

    def remove(self, context: float) -> None:
        """Remove a row with `context` tokens; the other rows' prompts stay."""
        self.rows -= 1
        self.context -= context
        if not self.rows:
            self.clear()

    def clear(self) -> None:
        """Remove all rows and their prompts; what was spent stays counted."""
        self.rows = 0
        self.context = 0.0
        self.prompt_s = 0.0
        self.first_s = 0.0

    def _compute(self, seconds: float) -> float:
        """Count `seconds` spent on waiting prompts, new and known tokens in proportion."""
        first_s = seconds * (self.first_s / self.prompt_s)
        self.prompt_s -= seconds
        self.first_s = self.first_s - first_s if self.prompt_s else 0.0
        self.full_batch_s += first_s
        self.recomputing_s += seconds - first_s
        return seconds

    def _passes_in(self, seconds: float) -> float:
        base = self.rates.batch_s(self.rows) + self.rates.context_s * self.context
        growth = self.rates.context_s * self.rows
        if growth <= 0:
            return seconds / base
        # The root of growth m^2 / 2 + base m = seconds, in the form that loses no digits.
        return 2 * seconds / (base + sqrt(base * base + 2 * growth * seconds))

    def _count(self, passes: float) -> None:
        read = self.rates.context_s * passes * (self.context + self.rows * passes / 2)
        full = max(self.rows, round(self.rates.full_rows(self.context / self.rows)))
        tokens = passes * self.rows
        self.full_batch_s += tokens * self.rates.batch_s(full) / full + read
        self.tokens += tokens
        self.context += tokens
        self.passes += passes
