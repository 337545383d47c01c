"""A run's outcome: the summary, charts and final weights that it leaves in its directory.

Reads the log of a run whose processes have ended; the broker must still run.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seamlessflow.config import RunConfig
from seamlessflow.each_policy import each_policy
from seamlessflow.infra.clock import Stopping
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.weights.manifest import MANIFEST, base_of
from seamlessflow.infra.weights.versions import versions
from seamlessflow.lab.timeline import chart
from seamlessflow.processes.usage import peak_rss_mb
from seamlessflow.recorded.audit.verify import Verification, verify
from seamlessflow.reports.charts import plot_lengths, plot_rewards
from seamlessflow.reports.lengths import bias
from seamlessflow.reports.reward_curve import evaluation_curves, session_facts, step_facts
from seamlessflow.reports.summary import LauncherFacts, of_policy, summary
from seamlessflow.scheduler.state.timeline import timeline
from seamlessflow.schemas.records import Trajectory
from seamlessflow.schemas.topics import CONTROL, TRAJECTORIES
from seamlessflow.trainer.data.credit.returns import RewardWeights
from seamlessflow.trainer.metrics.symptoms import symptoms
from seamlessflow.trainer.metrics.unlearned import why_little

FINAL = "final"
"""Directory below the weights, with a copy of the last version."""


@dataclass(frozen=True)
class RunOutcome:
    """A run that has ended."""

    out: Path
    summary: Mapping[str, Any]
    verification: Verification | None
    """The check on the trained tokens; None if another run sampled them."""
    reasons: tuple[str, ...] = ()
    """Reasons for little learning, empty if the reward rose; and a bias in the trained sessions."""
    skipped: tuple[str, ...] = ()
    """Notices about records that could not be read; the figures are without them."""
    weights: tuple[Path, ...] = ()
    """Directories with the last weights, one for each policy that has any."""

    @property
    def failed(self) -> bool:
        """True if the check found a fault, or if no token was trained in the whole run."""
        clean = self.verification is None or self.verification.clean
        return not (clean and self.summary["tokens_trained"])


def write_report(
    config: RunConfig,
    kafka: KafkaSettings,
    facts: LauncherFacts,
    stopping: Stopping,
    source: KafkaSettings | None = None,
) -> RunOutcome:
    """Write `summary.json`, `reward.png`, `lengths.png`, `timeline.png` and the final weights.

    `source`: where recorded sessions were read, if not under the prefix of `kafka`.
    Raises `KafkaUnavailable`, also once `stopping`.
    """
    skipped = Skipped()
    control = [item.record for item in read_topic(kafka, CONTROL, skipped, stopping=stopping)]
    made = (
        item.record
        for item in read_topic(source or kafka, TRAJECTORIES, skipped, stopping=stopping)
        if isinstance(item.record, Trajectory)
    )
    sessions = session_facts(made, *_weights(config))
    # The events of recorded sessions are under another prefix, or there are none.
    checked = None if source else verify(kafka, config.trained_dir, skipped, stopping)
    peaks_mb = {**facts.peak_rss_mb, "seamlessflow": peak_rss_mb("self")}
    ahead = config.run.lag + config.pacing.extra_groups
    facts = replace(facts, peak_rss_mb=peaks_mb, lag=ahead)
    names = config.trained
    figures = summary(control, sessions, facts, checked, names)
    steps = step_facts(of_policy(control, config.run.policy), sessions)
    figures["symptoms"] = _symptoms(
        {
            name: [step.metrics for step in step_facts(of_policy(control, name), sessions)]
            for name in names
        }
    )
    text = json.dumps(figures, indent=2, ensure_ascii=False)
    (config.out / "summary.json").write_text(text + "\n", encoding="utf-8")
    held_back = facts.eval_before, facts.eval_after
    plot_rewards(steps, held_back, evaluation_curves(control), config.out / "reward.png")
    plot_lengths(sessions, steps, config.out / "lengths.png")
    chart.plot(timeline(control), config.out / "timeline.png")
    kept = map(
        keep_final_weights, [policy_config.weights_dir for policy_config in each_policy(config)]
    )
    weights = tuple(directory for directory in kept if directory is not None)
    metrics = [step.metrics for step in steps]
    reasons = why_little(figures["reward_first10"], figures["reward_last10"], metrics)
    if biased := bias(figures["lengths"]):
        reasons = [*reasons, biased]
    notices = tuple(skipped.notices)
    return RunOutcome(config.out, figures, checked, tuple(reasons), notices, weights)


def _weights(config: RunConfig) -> tuple[RewardWeights, Mapping[str, RewardWeights]]:
    """Return the first policy's reward weights, and each further policy's by name."""
    first, *others = each_policy(config)
    further = {other.run.policy: other.trainer.reward_weights for other in others}
    return first.trainer.reward_weights, further


def _symptoms(by_policy: Mapping[str, Sequence[Mapping[str, float]]]) -> list[str]:
    """Return what stands out, with the policy's name if there are several."""
    pairs = [(name, symptom) for name, steps in by_policy.items() for symptom in symptoms(steps)]
    return [symptom if len(by_policy) == 1 else f"{name}: {symptom}" for name, symptom in pairs]


def keep_final_weights(directory: Path) -> Path | None:
    """Copy the newest version to `final`, a plain Hugging Face directory; None if there is none.

    An adapter is merged with its base model. Raises `AdapterInvalid` if that has changed.
    """
    published = versions(directory)
    if not published:
        return None
    newest = published[max(published)]
    target = directory / FINAL
    if (base := base_of(newest)) is not None:
        # Not at the top: it imports torch, which takes seconds.
        from seamlessflow.trainer.backends.adapter.whole_model import merge

        base.verify(newest)
        merge(Path(base.directory), newest, target)
        return target
    draft = directory / f".{FINAL}"  # renamed when complete: `final` is never half a copy
    for stale in (draft, target):
        shutil.rmtree(stale, ignore_errors=True)
    shutil.copytree(newest, draft, ignore=shutil.ignore_patterns(MANIFEST))
    draft.rename(target)
    return target
