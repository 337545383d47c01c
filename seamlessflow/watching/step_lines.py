"""Lines of completed optimizer steps, for logs and pipes. Pure."""

from collections.abc import Mapping

from seamlessflow.schemas.steps import step_name
from seamlessflow.watching.progress import RunProgress, Step


class StepLines:
    """The lines of steps that were not shown yet."""

    def __init__(self) -> None:
        self._shown: set[tuple[str, int, int]] = set()
        self._newest: dict[str, Step | None] = {}

    def new(self, progress: RunProgress) -> list[str]:
        """Return a line for each step that the present processes completed since the last call.

        With several policies each line begins with the name of its policy.
        """
        if progress.others:
            of_policies = (progress, *progress.others.values())
            return [
                f"{policy.policy}: {line}" for policy in of_policies for line in self._own(policy)
            ]
        return self._own(progress)

    def _own(self, progress: RunProgress) -> list[str]:
        name = progress.policy
        if progress.last is self._newest.get(name):  # called often; a step is one object
            return []
        self._newest[name] = progress.last
        fresh = [
            step
            for _, step in sorted(progress.steps.items())
            if step.at_ms >= progress.since_ms
            and (name, step.step, step.version) not in self._shown
        ]
        self._shown |= {(name, step.step, step.version) for step in fresh}
        return [step_line(step, progress) for step in fresh]


def step_line(step: Step, progress: RunProgress) -> str:
    """Return version, reward, tokens, staleness of a step, and what was left out of it."""
    metrics = step.metrics
    parts = [f"{step_name(step.step)}/{progress.total}", f"version {step.version}"]
    parts.append("no reward" if step.reward is None else f"reward {step.reward:.3f}")
    parts.append(f"{metrics.get('tokens_trained', 0):,.0f} tokens trained")
    if "staleness_max" in metrics:
        mean, most = metrics.get("staleness_mean", 0.0), metrics["staleness_max"]
        parts.append(f"staleness {mean:.1f}, at most {most:.0f}")
    if speed := progress.tokens_per_s():
        parts.append(f"{speed:,.0f} tokens/s")
    if left_out := _left_out(metrics):
        parts.append(f"left out: {', '.join(left_out)}")
    return " · ".join(parts)


def _left_out(metrics: Mapping[str, float]) -> list[str]:
    """Return tokens, groups and sessions that did not enter the loss, each with its reason."""
    parts = []
    for name, value in sorted(metrics.items()):
        family, _, reason = name.partition("/")
        match family:
            case "masked" if value > 0:
                parts.append(f"{value:,.0f} tokens {reason}")
            case "filtered" if value > 0:
                parts.append(f"{value:.0%} of the groups {reason}")
            case "dropped" if value > 0:
                parts.append(f"{value:.0f} groups dropped as {reason}")
            case "samples_failed" if value > 0:
                parts.append(f"{value:.0f} sessions failed")
    return parts
