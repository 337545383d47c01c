"""The gain of samplers on made-up tasks: most of a run's groups should have passes and failures.

1,000 tasks have true rates of passes from Beta(0.3, 0.3): most are nearly always, or nearly never,
solved. A step draws 64 groups of 8 samples. Their results come one step late.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest

from seamlessflow.scheduler.sampling.draws import sampling_of
from seamlessflow.scheduler.sampling.settings import SamplerSection, TermsSection
from tests.builders.scheduler.sampling import SampledRun, source_of

TASKS = 1_000
GROUPS = 64
SAMPLES = 8
SEEDS = (0, 1)
STEPS = 50
PERMUTED = 60


class Played(NamedTuple):
    """Figures by step."""

    worth: list[float]
    """Mean p (1 - p) of the drawn tasks."""
    mixed: list[float]
    """Share of groups with passes and failures."""


def play(name: str | None, seed: int, steps: int, permuted: int | None = None) -> Played:
    """Play so many steps of a run that draws by a sampler; at one of them all rates change."""
    generator = np.random.default_rng(seed)
    rates = generator.beta(0.3, 0.3, TASKS)
    source = source_of(TASKS)
    sampler = SamplerSection.model_validate({"name": name})
    sampling = sampling_of(sampler, TermsSection(), {}, source, (seed, SAMPLES, 0))
    run = SampledRun(source, sampling)
    figures = Played([], [])
    late: list[tuple[str, list[float]]] = []
    for step in range(steps):
        if step == permuted:
            rates = generator.permutation(rates)
        names = run.names(GROUPS)
        drawn = rates[[int(task_id.removeprefix("train-")) for task_id in names]]
        passed = generator.random((GROUPS, SAMPLES)) < drawn[:, None]
        figures.worth.append(float((drawn * (1 - drawn)).mean()))
        figures.mixed.append(float((passed.any(axis=1) & ~passed.all(axis=1)).mean()))
        for task_id, returns in late:
            run.finish(task_id, *returns)
        late = [(task_id, row.tolist()) for task_id, row in zip(names, passed * 1.0, strict=True)]
        run.train(step + 1)
    return figures


@cache
def played(name: str) -> Sequence[Played]:
    """Return a run for each seed, of which the rates change at a step."""
    return [play(name, seed, PERMUTED + 60, permuted=PERMUTED) for seed in SEEDS]


@cache
def shuffled(seed: int) -> float:
    return float(np.mean(play(None, seed, STEPS).worth))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "gain"),
    [
        ("vade", 1.4),
        ("target", 1.6),
    ],
)
def test_a_sampler_draws_tasks_whose_outcome_is_open(name: str, gain: float) -> None:
    for seed, run in zip(SEEDS, played(name), strict=True):
        worth = float(np.mean(run.worth[:STEPS]))
        assert worth >= gain * shuffled(seed), f"seed {seed}: {worth / shuffled(seed):.3f}"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vade", "target"])
def test_groups_with_both_outcomes_are_back_soon_after_all_rates_changed(name: str) -> None:
    mixed = np.mean([run.mixed for run in played(name)], axis=0)
    before = float(mixed[PERMUTED - 10 : PERMUTED].mean())
    behind = float(mixed[PERMUTED : PERMUTED + 5].mean())
    back = float(mixed[-10:].mean())
    assert behind < 0.8 * before, "the change costs much"
    assert back >= 0.9 * before, f"seeds {SEEDS}: {back:.3f} of {before:.3f}"
