"""The recorded runs: their strategies, and the tags of their workers."""

from dataclasses import dataclass

BOTH, ROLLOUT, TRAIN = ("rollout", "train"), ("rollout",), ("train",)


@dataclass(frozen=True, slots=True)
class Arrangement:
    """A strategy, the tags of each worker, and `run.lag`."""

    strategy: str
    tags: tuple[tuple[str, ...], ...]
    lag: int


STRATEGIES = {
    "multiplexed": Arrangement("multiplexed", (ROLLOUT, BOTH), 1),
    "one-step-off": Arrangement("disaggregated", (ROLLOUT, TRAIN), 1),
    "disaggregated": Arrangement("disaggregated", (ROLLOUT, TRAIN), 0),
}
