"""Causes for learning little or nothing, each with its remedy, and which of them hold. Pure.

Facts have two forms: a step's tokens before training, and trained steps' metrics. The trainer asks
before and after each step. A run's report looks back on all its steps, and names only large shares.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean

from seamlessflow.trainer.data.batch import Prepared
from seamlessflow.trainer.data.figures.of_batch import StepTokens

StepMetrics = Mapping[str, float]

RISE = 0.05
"""Least rise in mean reward, from the first to the last ten steps, that needs no explanation."""

FEWEST_STEPS = 20
"""A shorter run is not expected to learn."""

EQUAL_REWARDS = "zero_variance"
"""Filter for groups with equal rewards, counted by the metric `filtered/zero_variance`."""

_LARGE_SHARE = 0.05
_MASKED = "masked/"
_LOST = (
    (_MASKED, "tokens_trained", "sampled tokens were not trained: {}"),
    ("dropped/", "groups", "groups were dropped as {}"),
    ("samples_failed", "sessions", "sessions failed and did not count"),
)
"""Metrics that count the lost and the kept part, and a text for the lost share."""

CAUSES: Mapping[str, str] = {
    EQUAL_REWARDS: "the task is too hard or too easy for the policy, or its reward does not tell "
    "sessions apart",
    "inexact_version": "weights were replaced between tokens whose version is not known apart",
    "inexact_top_p": "set policy.top_p = 1, or policy.train_truncated with rollout.engine torch",
    "inexact_top_k": "set policy.top_k = 0, or policy.train_truncated with rollout.engine torch",
    "inexact_json_schema": "sampled by the grammar of a response_format: let the agent force a "
    "tool call instead, or set policy.train_inexact",
    "inexact": "not sampled from the model's own distribution: set policy.top_p = 1 and "
    "policy.top_k = 0, let the agent ask for no response_format, or set policy.train_inexact",
    "eval": "the sessions are of purpose eval: leave purpose at train",
    "explore": "the sessions are of an exploration: some of them are sampled again to be trained",
    "judge": "the sessions are of a judge: leave purpose at train",
    "frozen": "sampled by a policy that is served and not trained (policies.NAME.frozen)",
    "stale": "older than run.lag (trainer.max_staleness) optimizer steps: raise it, or set "
    "trainer.on_stale = correct",
    "overlong": "a limit of trainer.overlong.masked ended the sessions: raise it, or train them",
    "unselected": "trainer.selection trains other sessions of their groups",
    "unpaired": "trainer.pairs compares other sessions of their groups",
    "high_entropy_turns": "trainer.masks takes them out of the loss",
    "prompt_mismatch": "the engine saw another prompt than was recorded: check the engine",
    "other_policy": "sampled by another policy than run.policy",
    "abandoned": "the agent went on from another answer to the same prompt; where its samples are "
    "votes, set policy.siblings = all",
    "undelivered": "clients left before they had the answer: raise their time-outs, or set "
    "policy.train_undelivered",
    "cancelled": "clients cancelled their calls",
    "no_prefix": "no token is before the first one, so nothing predicts it: begin with a prompt",
    "cut": "turns were under way when the session was closed",
    "failed": "turns failed, see TurnFailed",
    "dropped": "see GroupDropped",
    "samples_failed": "see SampleFailed",
    "lone_group": "open sessions of one task with the same group_id, each with its sample and the "
    "group_size, or set trainer.advantage (reinforce_pp, gae, turn_gae, habc and distill train "
    "such groups)",
    "modelled": "a rehearsal: the devices that train are modelled (trainer.backend clock), so "
    "nothing was learned and the weights are stand-ins",
    "failures": "trainer.advantage habc imitates sessions with a return of at least "
    "trainer.critic.passes: lower it, or draw easier tasks",
    "loss": "tokens were trained, but the loss took the gradient of all of them away",
}
"""Each cause's meaning and remedy; a mask is found by its reason's first words."""


def why_barren(tokens: StepTokens, dropped: Mapping[str, int], newest: str) -> str:
    """Return which rules took all tokens of a barren step, how many, and which setting to change.

    `dropped`: the groups that the step lost, by reason; `newest`: the last one's detail. They are
    named only if no token was masked and no method failed.
    """
    total = tokens.masked.total()
    reasons = [f"for {tokens.failed} groups {tokens.failure}"] if tokens.failed else []
    for reason, count in tokens.masked.most_common():
        cause = cause_of(_MASKED + reason)
        text = f"{count:,} of {total:,} sampled tokens are masked as {reason}"
        reasons.append(f"{text} ({cause})" if cause else text)
    if not reasons:
        lost = ", ".join(f"{count} {reason}" for reason, count in sorted(dropped.items()))
        reasons = [f"all groups were dropped ({lost}), the newest: {newest}"]
    return "; ".join(reasons)


def why_no_gradient(recent: Sequence[StepMetrics]) -> list[str]:
    """Return why these steps had no gradient; empty if one of them had one."""
    if not recent or any(_learns(metrics) for metrics in recent):
        return []
    return list(_reasons(recent, equal_share=1.0, least_share=0.0)) or [CAUSES["loss"]]


def why_little(first: float | None, last: float | None, steps: Sequence[StepMetrics]) -> list[str]:
    """Return why the mean reward did not rise from `first` to `last`; empty if it did.

    Also empty if a reward is unknown, or if the run was too short for a rise. With modelled devices
    these are the reason, whatever the rewards are.
    """
    if any("modelled_s" in metrics for metrics in steps):
        return [CAUSES["modelled"]]
    if first is None or last is None or len(steps) < FEWEST_STEPS or last - first >= RISE:
        return []
    head = f"the mean reward went from {first:.3f} to {last:.3f}: little or nothing was learned"
    return [head, *_reasons(steps, equal_share=_LARGE_SHARE, least_share=_LARGE_SHARE)]


def why_alone(groups: Iterable[Prepared], advantage: str) -> str:
    """Return why the first group that asked for one session taught nothing; empty without one.

    `advantage`: an estimator that compares a group's sessions.
    """
    for group in groups:
        source = group.group.sessions[0].source
        if source.group_size == 1:
            return (
                f"group {source.group_id} is of one session, and trainer.advantage {advantage} "
                f"compares the sessions of a group, so it taught nothing: {CAUSES['lone_group']}"
            )
    return ""


def masked_tokens(steps: Sequence[StepMetrics]) -> dict[str, int]:
    """Return how many sampled tokens these steps did not train, by reason, largest first."""
    counts = _counts(steps, _MASKED)
    return {metric.removeprefix(_MASKED): round(count) for metric, count in counts.items()}


def listed(masked: Mapping[str, int]) -> str:
    """Return masked-token counts for people, such as `24 inexact_json_schema, 3 stale`."""
    return ", ".join(f"{count:,} {reason}" for reason, count in masked.items())


def _learns(metrics: StepMetrics) -> bool:
    """Return True if the step had a gradient, or trained tokens on modelled devices."""
    learned = "tokens_trained" if "modelled_s" in metrics else "grad_norm"
    return metrics.get(learned, 0.0) > 0


def _reasons(steps: Sequence[StepMetrics], equal_share: float, least_share: float) -> Iterator[str]:
    """Yield the reasons whose share is large enough.

    Equal rewards and failures count from the share `equal_share` on, losses from `least_share` on.
    """
    equal = fmean(metrics.get(f"filtered/{EQUAL_REWARDS}", 0.0) for metrics in steps)
    if equal >= equal_share:
        reward = fmean(metrics.get("reward_mean", 0.0) for metrics in steps)
        yield (
            f"{equal:.0%} of all groups had equal rewards (mean {reward:.2f}) and taught nothing: "
            f"{CAUSES[EQUAL_REWARDS]}"
        )
    failed = 1 - fmean(metrics.get("success_share", 1.0) for metrics in steps)
    if failed >= equal_share:
        yield f"{failed:.0%} of the sessions failed: {CAUSES['failures']}"
    for prefix, kept, text in _LOST:
        # If all groups are filtered, masks change nothing.
        if equal < 1 or prefix != _MASKED:
            yield from _losses(_counts(steps, prefix), _sum(steps, kept), least_share, text)


def _losses(counts: Mapping[str, float], others: float, least: float, text: str) -> Iterator[str]:
    """Yield a text with share, count and cause for each metric whose count is above 0, in order.

    A share's whole is all counts plus `others`; shares below `least` are left out.
    """
    total = others + sum(counts.values())
    for metric, count in counts.items():
        if count > 0 and count / total >= least:
            lost = text.format(metric.partition("/")[2])
            details = ", ".join(filter(None, (f"{count:,.0f}", cause_of(metric))))
            yield f"{count / total:.0%} of the {lost} ({details})"


def cause_of(metric: str) -> str:
    """Return a cause's meaning and remedy, by its metric or name; empty if it is unknown."""
    reason = metric.removeprefix(_MASKED)
    for name, cause in CAUSES.items():
        if reason == name or reason.startswith((f"{name}_", f"{name}/")):
            return cause
    return ""


def _counts(steps: Sequence[StepMetrics], prefix: str) -> dict[str, float]:
    """Return the sum over these steps for each metric in a family, the largest first."""
    names = sorted({name for metrics in steps for name in metrics if name.startswith(prefix)})
    return dict(Counter({name: _sum(steps, name) for name in names}).most_common())


def _sum(steps: Sequence[StepMetrics], name: str) -> float:
    return sum(metrics.get(name, 0.0) for metrics in steps)
