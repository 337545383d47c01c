"""A run's figures for `summary.json`. Pure; called at a run's end.

An unknown figure is null. The figures and their sources:

- `reward_first10`, `reward_last10`: `reward_curve.py`, the first and last ten optimizer steps.
  Fewer than twenty steps are halved, so that no step is in both (`edge_steps`). Means over the
  sessions in the steps' groups, as the metric `reward_mean`.
- `reward_sampled`: the same with the groups that a filter dropped, `first10` and `last10`; absent
  if none was.
- `rewards`: each named reward's mean in the same steps, `first10` and `last10`, if there are
  several (`StepCompleted`).
- `eval_before`, `eval_after`: mean reward on held-back tasks, from the launcher.
- `evaluations`: by set, the run's evaluation rounds (`EvaluationCompleted`). Each has the steps and
  the version behind it, mean reward with standard error, sessions, chances to pass (one of k
  sessions, and all), turns and tokens a session.
- `sources`: each task set's groups, and its mean reward in the first and last ten steps
  (`StepCommitted`, `StepCompleted`). Only if there are several task sets.
- `steps`: optimizer steps behind the newest weights (`StepCommitted`).
- `trajectories`, `turns`, `ended_at` (shares of sessions that a limit ended), `tokens_sampled`,
  `interrupted_turns_continued`: all finalized training sessions (`Trajectory`), whether in a step
  or not. Evaluation sessions do not count.
- `tokens_masked`: sampled tokens in the same sessions that were not trained, by reason. The
  trainer's own reasons (such as `stale`) count the steps' sessions (`StepCompleted`).
- `groups_left_out`: by filter, the share of the steps' groups kept out of the loss:
  `trainer.filters` with the action `count` (`StepCompleted`).
- `lengths`: quantiles for sampled tokens and turns (`trainer/data/lengths.py`). `begun` has all
  these sessions, `taken` those that steps took, `trained` those whose tokens entered the loss.
- `tokens_trained`, `max_staleness`, `logprob_mismatch_max`: sum and maxima over their metrics
  (`StepCompleted`). Staleness is in optimizer steps, for the oldest trained token at step start.
- `tokens_reused`: trained tokens in groups that earlier steps trained (`trainer.reuse`;
  `StepCompleted`); absent if there are none.
- `tokens_over_age`: tokens older than `trainer.max_staleness`, in the steps' groups and in dropped
  ones (`StepCompleted`). They count whatever `trainer.on_stale` did with them.
- `role_switches`, `idle_share` (by worker), `device_time` (each category's share, all workers),
  `step_s` (mean) and `ideal_step_s` (by its two limits): `scheduler/state`. They cover the time in
  which the run trained; `docs/scheduling/device-time.md` has the formulas.
- `train_wall_s`: from the first training group (`GroupAdmitted`) to the last step's end
  (`StepCompleted`), without `paused_s`. With recorded sessions it begins at the first step
  (`StepStarted`).
- `paused_s`: pauses in this time, in which no process of the run lived (`scheduler/state`); in no
  other figure.
- `warmup_s`, `restarts`, `peak_rss_mb`: from the launcher.
- `processors`: by process, while the run trained, as shares of that time. `computed` is its time on
  processors; `waited` is its threads' mean time in the run queue, weighted by `computed`. All a
  worker's ranks count to its training process.
- `phases`: mean seconds for each phase in a step (`trainer/metrics/phases.py`). `tokens_per_s`:
  trained tokens per second in these (`StepCompleted`).
- `checks`: `verify.py`.
- `symptoms`: what stands out in the last steps' metrics, with settings that help
  (`trainer/metrics/symptoms.py`; added by `outcome.py`).

If there are several policies, the figures cover all together. `step_s` is then the time from any
policy's step to the next, and rewards are the first policy's. `policies` has each policy's figures,
with its own `step_s`.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

from seamlessflow.processes.usage import ProcessLoad
from seamlessflow.recorded.audit.verify import Verification
from seamlessflow.reports.lengths import length_figures
from seamlessflow.reports.reward_curve import (
    SessionFacts,
    StepFacts,
    edge_size,
    edges,
    for_policy,
    mean_reward,
    sampled_reward,
    step_facts,
    task_set_figures,
)
from seamlessflow.scheduler.state.accounts.device_time import TimeWindow, together
from seamlessflow.scheduler.state.timeline import Timeline, timeline, without
from seamlessflow.schemas.records import GroupAdmitted, Record, StepCompleted, StepStarted
from seamlessflow.trainer.metrics.phases import mean_phases, within
from seamlessflow.trainer.metrics.unlearned import masked_tokens

_OF_TRAINING = ("train", "explore")
"""Purposes whose sessions a run's figures count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherFacts:
    """Facts about a run that are not on the log."""

    eval_before: float | None = None
    eval_after: float | None = None
    warmup_s: float | None = None
    """Seconds of supervised training before the run."""
    restarts: Mapping[str, int] = field(default_factory=dict)
    """Restart counts by process, for processes that had ended by themselves."""
    peak_rss_mb: Mapping[str, float] = field(default_factory=dict)
    """Each process's largest resident memory, in MiB."""
    loads: Mapping[str, ProcessLoad] = field(default_factory=dict)
    """Each process's load while the run trained."""
    lag: float = 1
    """The setting `run.lag`, and `pacing.extra_groups` as parts of a step."""


def summary(
    control: Sequence[Record],
    sessions: Mapping[str, SessionFacts],
    facts: LauncherFacts,
    verification: Verification | None,
    policies: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the figures as plain values for JSON.

    `control`: its records in log order. `policies`: the run's policy names, the first one first; by
    default all records belong to one policy.
    """
    by_policy: dict[str, Sequence[Record]] = {name: of_policy(control, name) for name in policies}
    by_policy = by_policy or {"": control}
    made = [step_facts(records, sessions) for records in by_policy.values()]
    steps = [step for policy_steps in made for step in policy_steps]
    training = [session for session in sessions.values() if session.purpose in _OF_TRAINING]
    roles = timeline(control)
    window = _training(control)
    lived = [step for policy_steps in made for step in _lived(policy_steps, window, roles.pauses)]
    each = {
        name: policy_figures(records, for_policy(sessions, name), roles.pauses)
        for name, records in by_policy.items()
    }
    return {
        **_edge_rewards(made[0]),
        "rewards": _named_rewards(made[0]),
        "eval_before": facts.eval_before,
        "eval_after": facts.eval_after,
        **task_set_figures(control, made[0]),
        "steps": len(steps),
        "trajectories": len(training),
        "turns": sum(session.turns for session in training),
        "ended_at": _ended_at(training),
        **_tokens(training, steps),
        "groups_left_out": _left_out(steps),
        "lengths": length_figures(sessions, steps),
        "role_switches": roles.switches,
        "max_staleness": _whole(max(_of_all(steps, "staleness_max"), default=None)),
        "interrupted_turns_continued": sum(session.interrupted_turns for session in training),
        "warmup_s": facts.warmup_s,
        **_wall_time(window, roles.pauses),
        **_device_time(roles, facts.lag),
        **_phases(lived),
        "restarts": dict(facts.restarts),
        "peak_rss_mb": {name: round(mb, 1) for name, mb in sorted(facts.peak_rss_mb.items())},
        "processors": {name: _rounded(asdict(load)) for name, load in facts.loads.items()},
        "checks": _checks(verification),
        "logprob_mismatch_max": max(_metric(steps, "mismatch_max"), default=None),
        **({"policies": each} if len(each) > 1 else {}),
    }


def of_policy(control: Iterable[Record], policy: str) -> list[Record]:
    """Return the records that name the policy or none, or that are for all policies."""
    return [
        record
        for record in control
        if isinstance(record, GroupAdmitted) or getattr(record, "policy", "") in ("", policy)
    ]


def policy_figures(
    control: Sequence[Record],
    sessions: Mapping[str, SessionFacts],
    paused: Sequence[TimeWindow] = (),
) -> dict[str, Any]:
    """Return one policy's figures, from its `control` records; `paused` is its run's."""
    steps = step_facts(control, sessions)
    tokens = _of_all(steps, "tokens_trained")
    took_s = _seconds(_training(control), paused)
    made = sum(isinstance(record, StepCompleted) for record in control)
    return {
        "steps": len(steps),
        "step_s": None if took_s is None else round(took_s / made, 4),
        "version": steps[-1].version if steps else None,
        **_edge_rewards(steps),
        "tokens_trained": _whole(sum(tokens) if tokens else None),
        "max_staleness": _whole(max(_of_all(steps, "staleness_max"), default=None)),
    }


def _tokens(training: Sequence[SessionFacts], steps: Sequence[StepFacts]) -> dict[str, Any]:
    """Return the figures for sampled and trained tokens."""
    tokens = _of_all(steps, "tokens_trained")
    return {
        "tokens_sampled": sum(session.tokens_sampled for session in training),
        "tokens_trained": _whole(sum(tokens) if tokens else None),
        **_reused(steps),
        "tokens_masked": _masked(training, steps),
        "tokens_over_age": _whole(sum(_metric(steps, "tokens_over_age")) if tokens else None),
    }


def _reused(steps: Iterable[StepFacts]) -> dict[str, int]:
    """Return the trained tokens in groups that earlier steps trained, if there are any."""
    shares = [(step.metrics.get("reused_share", 0.0), step.metrics) for step in steps]
    count = round(sum(share * metrics["tokens_trained"] for share, metrics in shares if share))
    return {"tokens_reused": count} if count else {}


def _edge_rewards(steps: Sequence[StepFacts]) -> dict[str, Any]:
    """Return the mean rewards in the first and the last steps, and how many these are."""
    first, last = edges(steps)
    rewards: dict[str, Any] = {
        "reward_first10": mean_reward(first),
        "reward_last10": mean_reward(last),
        "edge_steps": edge_size(len(steps)),
    }
    if any(step.dropped_rewards for step in steps):
        rewards["reward_sampled"] = {
            "first10": sampled_reward(first),
            "last10": sampled_reward(last),
        }
    return rewards


def _named_rewards(steps: Sequence[StepFacts]) -> dict[str, dict[str, float]]:
    """Return each named reward's mean in the first and last steps; empty for only one."""
    rewards: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for edge, part in zip(("first10", "last10"), edges(steps), strict=True):
        for metric in dict.fromkeys(name for step in part for name in step.metrics):
            family, _, name = metric.partition("/")
            if family == "reward" and "/" not in name:  # behind a further one are quantiles
                rewards[name][edge] = round(fmean(_metric(part, metric)), 4)
    return dict(rewards) if len(rewards) > 1 else {}


def _device_time(roles: Timeline, lag: float) -> dict[str, Any]:
    """Return the figures for device time and steps."""
    spent = roles.device_time()
    ideal = roles.ideal_step(lag)
    step_ms = roles.step_ms
    limits = {"work": ideal.work_ms, "latency": ideal.latency_ms} if ideal else {}
    return {
        "idle_share": _rounded({name: part.idle_share for name, part in sorted(spent.items())}),
        "device_time": _rounded(together(spent.values()).shares()),
        "step_s": None if step_ms is None else round(step_ms / 1000, 4),
        "ideal_step_s": _rounded({name: ms / 1000 for name, ms in limits.items()}),
    }


def _wall_time(training: TimeWindow | None, paused: Sequence[TimeWindow]) -> dict[str, Any]:
    """Return how long the run trained, and how long it paused in between."""
    whole_s = _seconds(training) or 0.0
    lived_s = _seconds(training, paused)
    return {"train_wall_s": lived_s, "paused_s": round(whole_s - (lived_s or 0.0), 3)}


def _lived(
    steps: Sequence[StepFacts], training: TimeWindow | None, paused: Sequence[TimeWindow]
) -> Iterator[Mapping[str, float]]:
    """Yield a policy's step metrics, without the time before training or while no process lived."""
    before_ms = None if training is None else training[0]
    for step in steps:
        if before_ms is None or step.at_ms is None:
            yield step.metrics
        else:
            yield within(step.metrics, without((before_ms, step.at_ms), paused) / 1000)
            before_ms = step.at_ms


def _phases(steps: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    phases = mean_phases(steps)
    rate = phases.pop("tokens_per_s", None)
    return {"phases": _rounded(phases), "tokens_per_s": None if rate is None else round(rate, 1)}


def _rounded(figures: Mapping[str, float]) -> dict[str, float]:
    return {name: round(figure, 4) for name, figure in figures.items()}


def _ended_at(sessions: Sequence[SessionFacts]) -> dict[str, float]:
    """Return the share of sessions that each limit ended."""
    counts = Counter(session.limit for session in sessions if session.limit)
    return {limit: round(count / len(sessions), 4) for limit, count in sorted(counts.items())}


def _masked(sessions: Sequence[SessionFacts], steps: Sequence[StepFacts]) -> dict[str, int]:
    masked = Counter[str]()
    for session in sessions:
        masked.update(session.masked)
    of_trainer = masked_tokens([step.metrics for step in steps])
    return of_trainer | dict(masked.most_common())


def _left_out(steps: Sequence[StepFacts]) -> dict[str, float]:
    """Return the mean share that each filter kept out of the loss, in groups."""
    shares = defaultdict[str, float](float)
    for step in steps:
        for name, share in step.metrics.items():
            family, _, rule = name.partition("/")
            if family == "filtered":
                shares[rule] += share / len(steps)
    return _rounded(dict(sorted(shares.items())))


def _checks(verification: Verification | None) -> dict[str, int | None]:
    return {
        "tokens_checked": verification.tokens_checked if verification else None,
        "mismatches": verification.mismatches if verification else None,
        "trained_twice": verification.trained_twice if verification else None,
    }


def _metric(steps: Iterable[StepFacts], name: str) -> list[float]:
    """Return a metric from the steps that have it; no step has a metric that it cannot measure."""
    return [step.metrics[name] for step in steps if name in step.metrics]


def _of_all(steps: Sequence[StepFacts], name: str) -> list[float]:
    """Return a metric from all steps; empty unless every step has it."""
    values = _metric(steps, name)
    return values if len(values) == len(steps) else []


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _seconds(training: TimeWindow | None, paused: Sequence[TimeWindow] = ()) -> float | None:
    return None if training is None else without(training, paused) / 1000


def _training(control: Iterable[Record]) -> TimeWindow | None:
    """Return when the training began and its last step ended; None if one is missing."""
    begun = []
    done = []
    for record in control:
        match record:
            case GroupAdmitted(purpose="eval"):
                continue
            case GroupAdmitted() | StepStarted():
                begun.append(record.at_ms)
            case StepCompleted():
                done.append(record.at_ms)
    return (min(begun), max(done)) if begun and done else None
