"""Rates measured in a run: rollout speeds, gang speeds, and a step's tokens.

A pure fold over `control`. Newer measurements count more (an exponential mean), so the rates follow
changing lengths and devices. Called by `scheduler/state/state.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record

NEWEST = 0.3
"""Weight of the newest measurement in a mean."""
STEPS = 32
"""Number of steps whose gangs are remembered."""


@dataclass(frozen=True, slots=True)
class GangSpeed:
    """A finished step: its gang, and the tokens that each device trained in a millisecond."""

    members: tuple[str, ...]
    speed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedRates:
    """The rates, and the state to continue them."""

    sampled: Mapping[str, float] = field(default_factory=dict)
    """Tokens that each worker samples in a millisecond with full batches.

    A batch of few rows is slow on any worker, so it does not show the speed.
    """
    gangs: tuple[GangSpeed, ...] = ()
    """The last steps, newest last."""
    step_tokens: float | None = None
    """Mean tokens sampled for a step."""
    batch_tokens: int = 0
    """Trainable tokens in the batch announced last."""
    since_step: int = 0
    """Tokens sampled since the last completed step."""
    members: tuple[str, ...] = ()
    """Gang that trains the current step, or trained the last one."""


def apply(rates: LearnedRates, record: Record, devices: Mapping[str, int]) -> LearnedRates:
    """Return the rates after a `control` record; `devices`: device count by worker."""
    match record:
        case r.WorkerUsage(process="rollout"):
            return _sampled(rates, record)
        case r.BatchReady():
            return replace(rates, batch_tokens=record.trainable_tokens)
        case r.StepStarted():
            return replace(rates, members=record.workers)
        case r.StepCompleted():
            size = sum(devices.get(worker, 1) for worker in rates.members)
            return _completed(rates, record.took_ms, size)
    return rates


def _sampled(rates: LearnedRates, record: r.WorkerUsage) -> LearnedRates:
    rates = replace(rates, since_step=rates.since_step + record.tokens)
    busy_ms = record.full_batch_ms or record.decoding_ms
    if busy_ms <= 0 or record.tokens <= 0:
        return rates
    mean = _mean(rates.sampled.get(record.worker), record.tokens / busy_ms)
    return replace(rates, sampled={**rates.sampled, record.worker: mean})


def _completed(rates: LearnedRates, took_ms: int, devices: int) -> LearnedRates:
    after = replace(rates, step_tokens=_mean(rates.step_tokens, rates.since_step), since_step=0)
    if took_ms <= 0 or rates.batch_tokens <= 0 or devices == 0:
        return after
    shown = GangSpeed(rates.members, rates.batch_tokens / took_ms / devices)
    return replace(after, gangs=(*rates.gangs, shown)[-STEPS:])


def _mean(before: float | None, newest: float) -> float:
    return newest if before is None else before + NEWEST * (newest - before)
