"""A simulated run's figures: times from its `control` log, tokens and staleness from the run."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from seamlessflow.lab.simulation.simulator import SimulatedRun
from seamlessflow.scheduler.settings import SchedulerSettings
from seamlessflow.scheduler.state.accounts.closed_form import ideal_step
from seamlessflow.scheduler.state.accounts.device_time import DeviceTime, together
from seamlessflow.scheduler.state.timeline import timeline
from seamlessflow.scheduler.state.workers import device_count
from seamlessflow.schemas.records import RoleAssigned, WorkerJoined

WARM_UP_STEPS = 2
"""Steps that no figure covers: the first ones wait for the first rollouts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedFigures:
    """Means over the steps after the first ones, while the run goes on and no engine runs empty."""

    step_s: float
    ideal_s: float
    """Ideal step for the run's work (`scheduler/state/accounts/closed_form.py`)."""
    tokens_s: float
    """Trained tokens a second, prompts included."""
    spent: DeviceTime
    staleness: float
    """Mean over trained sessions."""
    most_staleness: int
    over_age: float
    """Share of trained sessions' sampled tokens that were older than `trainer.max_staleness`.

    It covers the whole run. If that setting is missing, `run.lag` is the limit. `trainer.on_stale`
    decides what happens to such tokens.
    """
    recycled: float
    """Share of trained sessions' sampled tokens that came before an update during the session."""
    stopped: float
    """Share of all sampled tokens in sessions that `pacing.redundancy` or a deadline stopped."""
    shorter: float
    """Share by which trained sessions were shorter, on average, than all begun ones would be."""
    switches: float
    """Changes from one role to the other, per step."""


def why_none(run: SimulatedRun, settings: SchedulerSettings) -> str:
    """Return how many steps a run without figures made, and why, if its records show it."""
    made = f"no figures: {len(run.tokens)} of {settings.run.steps} steps in {run.ended_s:,.0f} s"
    why = run.vain or _lacking(run, settings) or _too_few(run)
    return f"{made}; {why}" if why else made


def _too_few(run: SimulatedRun) -> str:
    if len(run.tokens) > WARM_UP_STEPS:
        return ""
    return (
        f"the first {WARM_UP_STEPS} steps are not counted, since they wait for the first "
        "rollouts: simulate more (--steps)"
    )


def _lacking(run: SimulatedRun, settings: SchedulerSettings) -> str:
    size = settings.scheduler.gang_size
    joined = dict[str, int]()
    roles = set[str]()
    for record in run.control:
        match record:
            case WorkerJoined() if "train" in record.tags:
                joined[record.worker] = device_count(record)
            case RoleAssigned():
                roles.add(record.role)
    able = sum(joined.values())
    if size is not None and size > able:
        return f"scheduler.gang_size is {size}; devices with the tag train: {able}"
    if lacking := [role for role in ("rollout", "train") if role not in roles]:
        return (
            f"no worker was assigned {lacking[0]}: it needs workers with that tag alone, or a "
            "scheduler.gang_size that leaves some"
        )
    return ""


def figures(
    run: SimulatedRun, settings: SchedulerSettings, max_age: int | None = None
) -> SimulatedFigures | None:
    """Return the figures, or None if the run made too few steps, or not all of its steps.

    Tokens older than `max_age` are over age; None: `run.lag`.
    """
    course = timeline(run.control)
    steps = len(course.steps) - WARM_UP_STEPS
    if steps < 1 or len(run.tokens) < settings.run.steps:
        return None
    window = (course.steps[WARM_UP_STEPS - 1].at_ms, course.steps[-1].at_ms)
    length_ms = window[1] - window[0]
    spent = together(course.device_time(window).values())
    ahead = settings.run.lag + settings.pacing.extra_groups
    trained = sum(run.ages.values())
    stopped = run.cancelled + run.overdue
    ideal = ideal_step(spent, steps, spent.total / length_ms, course.group_ms(window) or 0.0, ahead)
    return SimulatedFigures(
        step_s=length_ms / steps / 1000,
        ideal_s=ideal.ms / 1000,
        tokens_s=1000 * sum(run.tokens[WARM_UP_STEPS:]) / length_ms,
        spent=spent,
        staleness=fmean(run.staleness),
        most_staleness=max(run.staleness),
        over_age=_share_over(run.ages, settings.run.lag if max_age is None else max_age),
        recycled=run.recycled / trained,
        stopped=stopped / (stopped + trained),
        shorter=1 - trained / len(run.staleness) / run.mean_drawn,
        switches=course.switches / len(course.steps),
    )


def _share_over(ages: Mapping[int, float], limit: int) -> float:
    """Return the share of tokens that are older than `limit`."""
    older = sum(tokens for age, tokens in ages.items() if age > limit)
    return older / sum(ages.values())
