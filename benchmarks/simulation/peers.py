"""Published steps of a peer against the simulator: `python -m benchmarks.simulation.peers`.

Devices and work are fitted to the parts of a published step in one mode, colocated; the simulator
then predicts another mode, one step off, and the error is printed. Figures: verl, page "One Step
Off Policy Async Trainer" of its documentation (docs/advance/one_step_off.md, 17 July 2025):
Qwen2.5-Math-7B, DAPO, two nodes with 16 H20 in all, 4 of which generate and 12 train; 512 prompts
of 16 samples a step are those of its recipes for this model.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seamlessflow.infra.device_model.presets import hardware_named, model_named
from seamlessflow.infra.device_model.rates import Efficiency, Rates, rates_of
from seamlessflow.lab.simulation.cluster import ModelledCluster, ModelledWorker
from seamlessflow.lab.simulation.figures import figures
from seamlessflow.lab.simulation.simulator import simulate
from seamlessflow.lab.simulation.workload import Workload, WorkloadSection
from seamlessflow.scheduler.settings import (
    PacingSection,
    RunSection,
    SchedulerSection,
    SchedulerSettings,
)
from seamlessflow.scheduler.state.accounts.closed_form import DISAGGREGATED, StepWork, predicted

DEVICES, GENERATING, UNIT = 16, 4, 2
"""Devices in all, those that only generate in the second mode, and those of an engine."""
GROUPS, SAMPLES, ROWS = 512, 16, 256
SPREADS = (0.5, 1.0, 1.5)
"""Of the lengths of answers, which are not published."""
STEPS = 5
BOTH, ROLLOUT, TRAIN = ("rollout", "train"), ("rollout",), ("train",)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedStep:
    """Seconds of a step and of its parts, colocated, and of a step in the other mode."""

    name: str
    step_s: float
    generation_s: float
    """With the changes of role around it."""
    sampling_s: float
    training_s: float
    """Log-probs of the old policy, and the update."""
    update_s: float
    most_tokens: int
    other_s: float

    @property
    def rest_s(self) -> float:
        """Time of neither generation nor training."""
        return self.step_s - self.generation_s - self.training_s

    @property
    def tokens(self) -> float:
        """Tokens of an answer, from its update at the share of the peak that is assumed."""
        speed = DEVICES * hardware_named("H20").peak_flops * Efficiency().train_flops
        trained = self.update_s * speed / (6 * model_named("Qwen2.5-7B").active)
        return trained / GROUPS / SAMPLES


PUBLISHED = (
    PublishedStep(
        name="FSDP2",
        step_s=749,
        generation_s=321,
        sampling_s=247,
        training_s=88 + 286,
        update_s=286,
        most_tokens=20_480,
        other_s=520,
    ),
    PublishedStep(
        name="Megatron",
        step_s=699,
        generation_s=207,
        sampling_s=162,
        training_s=119 + 344,
        update_s=344,
        most_tokens=8_192,
        other_s=566,
    ),
)


def main() -> None:
    """Print a line for each published pair of modes and each spread of lengths."""
    for one in PUBLISHED:
        work = StepWork(rollout=one.sampling_s * DEVICES, train=one.training_s * DEVICES)
        closed = predicted(DISAGGREGATED, DEVICES, DEVICES - GENERATING, work, 1).step
        _print(one, "closed form", closed + one.rest_s)
        for spread in SPREADS:
            _print(one, f"simulated, spread {spread}", other_mode(one, spread))


def other_mode(one: PublishedStep, spread: float) -> float:
    """Return the step one step off, by rates and work that give the colocated parts."""
    workload = Workload(
        WorkloadSection(
            turns=1,
            prompt_tokens=200,
            turn_tokens=one.tokens,
            spread=spread,
            most_tokens=one.most_tokens,
        )
    )
    modelled = rates_of(hardware_named("H20"), model_named("Qwen2.5-7B"), UNIT, rows=ROWS)
    rates = replace(
        modelled, leave_s=0.0, take_s=0.0, sleep_s=0.0, wake_s=0.0, train_s=0.0, train_context_s=0.0
    )
    everywhere = [BOTH] * (DEVICES // UNIT)
    # Without training and changes of role a step is its sampling, which grows with its rates.
    alone_s, tokens = _step(everywhere, rates, workload, "colocated", 0, 0.0)
    factor = one.sampling_s / alone_s
    fitted = replace(
        rates.scaled(factor), train_s=one.training_s * DEVICES / UNIT / tokens, load_s=rates.load_s
    )
    split = [ROLLOUT] * (GENERATING // UNIT) + [TRAIN] * ((DEVICES - GENERATING) // UNIT)
    return _step(split, fitted, workload, DISAGGREGATED, 1, one.rest_s)[0]


def _step(
    tags: Sequence[tuple[str, ...]],
    rates: Rates,
    workload: Workload,
    strategy: str,
    lag: int,
    step_s: float,
) -> tuple[float, float]:
    """Return the simulated step in seconds and its tokens."""
    workers = {
        f"w{number}": ModelledWorker(tags=of, rates=rates, devices=UNIT)
        for number, of in enumerate(tags)
    }
    settings = SchedulerSettings(
        run=RunSection(steps=STEPS, groups_per_step=GROUPS, group_size=SAMPLES, lag=lag),
        scheduler=SchedulerSection(policy=strategy, min_dwell_s=0),
        pacing=PacingSection(tasks=Path("made up"), task_timeout_s=1e5, group_timeout_s=1e5),
    )
    cluster = ModelledCluster(workers=workers, step_s=step_s)
    # The published mode keeps one batch in flight, and trains it as a whole.
    run = simulate(settings, cluster, workload, whole_batches=True)
    found = figures(run, settings)
    if found is None:
        raise SystemExit(f"{strategy} did not make its {STEPS} steps")
    return found.step_s, found.tokens_s * found.step_s


def _print(one: PublishedStep, by: str, step_s: float) -> None:
    told = {"peer": "verl", "trainer": one.name, "colocated_s": one.step_s, "by": by}
    error = step_s / one.other_s - 1
    figures = {
        "one_step_off_s": one.other_s,
        "predicted_s": round(step_s),
        "error": round(error, 3),
    }
    print(json.dumps({**told, **figures}), flush=True)


if __name__ == "__main__":
    main()
