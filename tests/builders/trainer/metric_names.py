"""Names of metrics, held against the list of all."""

from seamlessflow.trainer.metrics.names import METRICS


def is_listed(name: str) -> bool:
    """Return whether the name is on the list, by itself or as a member of a family."""
    family, slash, _ = name.partition("/")
    return name in METRICS or (bool(slash) and f"{family}/*" in METRICS)
