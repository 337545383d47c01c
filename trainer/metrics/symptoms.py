"""A run's symptoms, read from its last steps' metrics, each with the settings that help.

Pure; called by a run's report. A symptom is reported from its threshold on.
"""

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import NamedTuple

from seamlessflow.trainer.metrics.unlearned import EQUAL_REWARDS, StepMetrics

WINDOW = 20
"""Last steps whose metrics are looked at."""


class Symptom(NamedTuple):
    """A figure over the last steps that stands out from `threshold` on."""

    text: str
    """Text with a placeholder for the figure."""
    levers: str
    threshold: float
    figure: Callable[[Sequence[StepMetrics]], float | None]
    """Returns the figure for these steps; None if they do not have it."""


def symptoms(steps: Sequence[StepMetrics]) -> list[str]:
    """Return the last steps' symptoms, ordered by where they arise, from rollout to updates."""
    last = [step for step in steps if "modelled_s" not in step][-WINDOW:]
    return [] if not last else list(_told(last))


def shares_of_ended(steps: Sequence[StepMetrics], family: str, counted: str) -> dict[str, float]:
    """Return a family's shares over all sessions, or turns, that ended before these steps.

    A step's weight is how many ended before it, by the metric `counted`. Empty if none ended.
    """
    weights = [(step, weight) for step in steps if (weight := step.get(counted, 0.0))]
    names = sorted({name for step, _ in weights for name in step if name.startswith(family)})
    whole = sum(weight for _, weight in weights)
    return {
        name.removeprefix(family): sum(step.get(name, 0.0) * weight for step, weight in weights)
        / whole
        for name in names
    }


def _told(last: Sequence[StepMetrics]) -> Iterator[str]:
    for symptom in SYMPTOMS:
        figure = symptom.figure(last)
        if figure is not None and figure >= symptom.threshold:
            yield f"{symptom.text.format(figure)}: {symptom.levers}"


def _mean(name: str) -> Callable[[Sequence[StepMetrics]], float | None]:
    def figure(steps: Sequence[StepMetrics]) -> float | None:
        values = [step[name] for step in steps if name in step]
        return fmean(values) if values else None

    return figure


def _family(prefix: str) -> Callable[[Sequence[StepMetrics]], float | None]:
    """Return a family's sum, as a mean over steps; a step has only members above 0."""
    return lambda steps: fmean(_sum(prefix, step) for step in steps)


def _of_ended(
    family: str, counted: str, name: str | None = None
) -> Callable[[Sequence[StepMetrics]], float | None]:
    """Return a family's share, or one member's, over all that ended before the steps."""

    def figure(steps: Sequence[StepMetrics]) -> float | None:
        shares = shares_of_ended(steps, family, counted)
        return sum(shares.values()) if name is None else shares.get(name)

    return figure


def _sum(prefix: str, metrics: StepMetrics) -> float:
    return sum(value for name, value in metrics.items() if name.startswith(prefix))


def _ratio(upper: str, lower: str) -> Callable[[Sequence[StepMetrics]], float | None]:
    def figure(steps: Sequence[StepMetrics]) -> float | None:
        high = _mean(upper)(steps)
        low = _mean(lower)(steps)
        return high / low if high is not None and low else None

    return figure


def _lost(prefix: str, kept: str) -> Callable[[Sequence[StepMetrics]], float | None]:
    """Return lost / (lost + kept), summed over all steps."""

    def figure(steps: Sequence[StepMetrics]) -> float | None:
        lost = sum(_sum(prefix, step) for step in steps)
        all_of_them = lost + sum(step.get(kept, 0.0) for step in steps)
        return lost / all_of_them if all_of_them else None

    return figure


def _untrained(steps: Sequence[StepMetrics]) -> float | None:
    """Return the share of sampled tokens that are masked, but not as unselected or unpaired."""
    lost = sum(
        step.get("tokens_masked", 0.0)
        - step.get("masked/unselected", 0.0)
        - step.get("masked/unpaired", 0.0)
        for step in steps
    )
    sampled = lost + sum(step.get("tokens_trained", 0.0) for step in steps)
    return lost / sampled if sampled else None


def _unrewarded(steps: Sequence[StepMetrics]) -> float | None:
    """Return the share of ended sessions, failed ones included, that lack a reward."""
    lacking = sum(_sum("samples_unrewarded", step) for step in steps)
    failed = max(lacking, sum(_sum("samples_failed", step) for step in steps))
    ended = failed + sum(step.get("sessions", 0.0) for step in steps)
    return lacking / ended if ended else None


def _dominated(steps: Sequence[StepMetrics]) -> float | None:
    """Return the largest group's tokens, divided by the mean over groups with trained tokens."""
    shares = [
        step["largest_group_share"] * step["groups"] * (1 - _sum("filtered/", step))
        for step in steps
        if "largest_group_share" in step
    ]
    return fmean(shares) if shares else None


def _recurring(steps: Sequence[StepMetrics]) -> float | None:
    """Return the largest task's tokens, divided by the mean task's; None if it has one group."""
    measured = [step for step in steps if "largest_task_share" in step]
    group = _mean("largest_group_share")(measured)
    task = _mean("largest_task_share")(measured)
    if group is None or task is None or task <= group:
        return None
    return fmean(step["largest_task_share"] * step["tasks"] for step in measured)


def _fall(name: str) -> Callable[[Sequence[StepMetrics]], float | None]:
    """Return the share by which a figure fell, from the first to the last quarter of the steps."""

    def figure(steps: Sequence[StepMetrics]) -> float | None:
        values = [step[name] for step in steps if name in step]
        quarter = len(values) // 4
        if quarter < 2 or (first := fmean(values[:quarter])) <= 0:
            return None
        return 1 - fmean(values[-quarter:]) / first

    return figure


def _missing(name: str) -> Callable[[Sequence[StepMetrics]], float | None]:
    """Return by how much the mean of a share stays below 1."""

    def figure(steps: Sequence[StepMetrics]) -> float | None:
        mean = _mean(name)(steps)
        return None if mean is None else 1 - mean

    return figure


SYMPTOMS = (
    Symptom(
        "{:.0%} of the sessions failed and were no part of a group",
        "SampleFailed on control has the reasons; agents.on_timeout, pacing.max_attempts",
        0.05,
        _lost("samples_failed", "sessions"),
    ),
    Symptom(
        "{:.0%} of the sessions ended without a reward that they need",
        "the detail of SampleFailed names it and those that were given; trainer.rewards, "
        "agents.reward, agents.reward_limit_s, agents.await_reward_s",
        0.05,
        _unrewarded,
    ),
    Symptom(
        "{:.0%} of the sessions ended at a limit",
        "the agent's own max_tokens (ended_at/max_tokens), policy.max_context, run.turn_limit, "
        "agents.time_limit_s, agents.on_limit; of ended_at/control: rollout.control",
        0.1,
        _of_ended("ended_at/", "sessions_ended"),
    ),
    Symptom(
        "{:.0%} of the sessions that a rule would have stopped passed, since they were exempt",
        "lower thresholds in rollout.control.settings; seamlessflow stops shows what each costs",
        0.1,
        _lost("exempt_passed", "exempt_failed"),
    ),
    Symptom(
        "the longest tenth of the sessions is {:.1f} times as long as the median",
        "pacing.extra_groups, pacing.redundancy, scheduler.policy multiplexed",
        4.0,
        _ratio("begun_tokens/p90", "begun_tokens/p50"),
    ),
    Symptom(
        "the longest hundredth of the sessions is {:.1f} times as long as the median",
        "run.turn_limit, agents.time_limit_s, trainer.overlong.length",
        10.0,
        _ratio("begun_tokens/p99", "begun_tokens/p50"),
    ),
    Symptom(
        "{:.0%} of the turns continue a history that agents changed, so that it was rendered anew",
        "policy.strictness, policy.renderer; seamlessflow replay match --strictness ids counts "
        "what would match",
        0.1,
        _of_ended("matched/", "turns_ended", "render"),
    ),
    Symptom(
        "{:.0%} of the sampled tokens are not trained since the engine saw another prompt",
        "policy.renderer, rollout.engine",
        0.01,
        _lost("masked/prompt_mismatch", "tokens_trained"),
    ),
    Symptom(
        "{:.0%} of the sessions have several chains, so agents edit what was sampled",
        "policy.strictness; seamlessflow replay match --strictness ids counts what would match",
        0.2,
        _mean("divided_share"),
    ),
    Symptom(
        "{:.0%} of the sessions have the tokens of another one of their group",
        "a higher temperature, trainer.loss.entropy, a smaller run.group_size",
        0.5,
        _mean("equal_share"),
    ),
    Symptom(
        "{:.0%} of the groups have equal rewards and teach nothing",
        "pacing.sampler, a larger run.group_size, other tasks, trainer.filters.zero_variance drop",
        0.5,
        _family(f"filtered/{EQUAL_REWARDS}"),
    ),
    Symptom(
        "{:.0%} of the explored groups have equal rewards, so nothing of them is trained",
        "pacing.sampler.samples, other tasks",
        0.8,
        _lost("explored_equal", "explored_mixed"),
    ),
    Symptom(
        "{:.0%} of the groups were dropped",
        "the detail of GroupDropped on control has the reasons; trainer.filters, trainer.on_stale, "
        "pacing.max_attempts",
        0.1,
        _lost("dropped/", "groups"),
    ),
    Symptom(
        "{:.0%} of the sampled tokens are not trained",
        "the row 'not trained' has the reasons; run.lag, trainer.max_staleness",
        0.1,
        _untrained,
    ),
    Symptom(
        "{:.0%} of the sampled tokens are of another system and not trained",
        "trainer.train_foreign, or recorded sessions of this policy",
        0.05,
        _lost("masked/foreign", "tokens_trained"),
    ),
    Symptom(
        "{:.0%} of the trained tokens are of sessions in which another system sampled",
        "trainer.train_foreign, trainer.loss.correction, or more sessions of this policy",
        0.2,
        _family("foreign_share"),
    ),
    Symptom(
        "trained tokens are {:.1f} optimizer steps old on average",
        "a smaller run.lag, trainer.max_staleness, trainer.loss.correction",
        2.0,
        _mean("staleness_mean"),
    ),
    Symptom(
        "{:.0%} of the trained tokens are of groups that earlier steps trained",
        "fewer trainer.reuse.groups, fewer trainer.reuse.uses",
        0.6,
        _mean("reused_share"),
    ),
    Symptom(
        "log-probs of engine and trainer differ by {:.3f} nats on average under the same weights",
        "trainer.dtype as the engine's, trainer.loss.correction icepop",
        0.02,
        _mean("mismatch_mean"),
    ),
    Symptom(
        "{:.0%} of the trained tokens are lost to unequal ratios (effective sample size)",
        "a smaller run.lag, a lower trainer.optimizer.lr, trainer.loss.correction",
        0.5,
        _missing("effective_sample_size"),
    ),
    Symptom(
        "one in a hundred trained tokens is at least {:.1f} times as likely as when it was sampled",
        "a smaller run.lag, a lower trainer.optimizer.lr, trainer.loss.correction",
        2.0,
        _mean("ratio_p99"),
    ),
    Symptom(
        "the entropy fell by {:.0%}",
        "trainer.loss.entropy, trainer.returns.entropy_scale or hybrid_scale, a larger "
        "trainer.loss.clip_high, a lower trainer.optimizer.lr",
        0.5,
        _fall("entropy"),
    ),
    Symptom(
        "the largest group of a batch has {:.1f} times its part of the trained tokens",
        "trainer.loss.aggregation sequence_mean, run.turn_limit, a larger run.groups_per_step",
        3.0,
        _dominated,
    ),
    Symptom(
        "the largest task of a batch has {:.1f} times its part of the trained tokens, in several "
        "groups",
        "other pacing.tasks, a larger run.groups_per_step, trainer.loss.aggregation sequence_mean",
        3.0,
        _recurring,
    ),
    Symptom(
        "{:.0%} of the trained tokens had their gradient cut",
        "a lower trainer.optimizer.lr, fewer trainer.epochs, a smaller run.lag, "
        "trainer.loss.correction",
        0.2,
        _mean("clip_fraction"),
    ),
)
"""Symptoms, ordered by where they arise: rollout, groups, batches, updates."""
