"""A mean over the last measurements, as immutable data that fits into a snapshot."""

from dataclasses import dataclass

WINDOW = 16


@dataclass(frozen=True, slots=True)
class Rolling:
    """The last measurements, newest last."""

    values: tuple[float, ...] = ()

    def add(self, value: float) -> "Rolling":
        """Return the measurements with one more; the oldest is dropped beyond `WINDOW`."""
        return Rolling((*self.values, value)[-WINDOW:])

    @property
    def mean(self) -> float | None:
        """Mean, or None before the first measurement."""
        return sum(self.values) / len(self.values) if self.values else None
