"""A mean over the last few measurements, as data."""

from dataclasses import dataclass

WINDOW = 16


@dataclass(frozen=True, slots=True)
class Rolling:
    """The last measurements, newest last."""

    values: tuple[float, ...] = ()

    def add(self, value: float) -> "Rolling":
        """With one more measurement; the oldest goes when there are more than `WINDOW`."""
        return Rolling((*self.values, value)[-WINDOW:])

    @property
    def mean(self) -> float | None:
        """None before the first measurement."""
        return sum(self.values) / len(self.values) if self.values else None
