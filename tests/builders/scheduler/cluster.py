"""Modelled clusters whose costs are given directly, as device time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from seamlessflow.infra.device_model.rates import Rates
from seamlessflow.lab.simulation.cluster import ModelledCluster, ModelledWorker
from seamlessflow.lab.simulation.workload import SessionDraw, Workload, WorkloadSection

TOKENS = 10
"""Tokens of each turn."""
_FOR_EVER_S = 1e9
Hangs = Callable[[str, int, int], bool]


@dataclass(frozen=True, slots=True)
class HangingWorkload(Workload):
    """Sessions of which some never end: their tool never answers."""

    hangs: Hangs = lambda group, sample, attempt: False
    """Returns True for an attempt (group, sample, attempt) that never ends."""

    def draw(self, group: str, sample: int, attempt: int) -> SessionDraw:
        session = Workload.draw(self, group, sample, attempt)
        if not self.hangs(group, sample, attempt):
            return session
        *before, (added, sampled, _) = session.turns
        return replace(session, turns=(*before, (added, sampled, _FOR_EVER_S), (0, 1, 0.0)))


def cluster(
    workers: Mapping[str, tuple[str, ...]],
    sample_ms: float,
    train_ms: float,
    samples: int,
    *,
    switch_ms: float = 0,
    turns: int = 1,
    rows: int = 1,
) -> ModelledCluster:
    """Return workers of one device that need `sample_ms` for a sample, whatever else they sample,
    and together `train_ms` for a step of so many samples.
    """
    tokens = turns * TOKENS
    rates = Rates(
        row_s=sample_ms / 1000 / tokens,
        train_s=train_ms / 1000 / samples / (tokens + 1),  # and one token of the prompt
        leave_s=switch_ms / 2000,
        take_s=switch_ms / 2000,
        sleep_s=switch_ms / 2000,
        wake_s=switch_ms / 2000,
        rows=rows,
    )
    return ModelledCluster(
        workers={name: ModelledWorker(tags=tags, rates=rates) for name, tags in workers.items()}
    )


def workload(
    turns: int = 1,
    spread: float = 0,
    seed: int = 0,
    swing: float = 1,
    swing_groups: int = 1,
    hangs: Hangs = lambda group, sample, attempt: False,
    filtered: Callable[[str], bool] = lambda group: False,
) -> Workload:
    """Return sessions of equal turns without waits in between."""
    section = WorkloadSection(
        turns=turns,
        prompt_tokens=1,
        tool_tokens=0,
        turn_tokens=TOKENS,
        spread=spread,
        prompt_effect=0,
        tool_s=0,
        swing=swing,
        swing_groups=swing_groups,
    )
    return HangingWorkload(section, seed, filtered, hangs)
