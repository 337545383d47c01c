"""Check of the mode of weight updates: without lag no worker may stay behind, and so none waits."""

from collections.abc import Iterator

from seamlessflow.config import RunConfig
from seamlessflow.infra.faults import Fault


def update_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield a fault for a mode that would be `together` in all but its name."""
    mode = config.rollout.update.mode
    if config.run.lag == 0 and mode != "together":
        text = f"{mode} has no effect with run.lag 0: each worker loads new weights at once"
        yield Fault(("rollout", "update", "mode"), f"{text}; set run.lag to 1 or more, or together")
