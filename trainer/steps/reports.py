"""Reports on finished steps: metrics for the sinks, alarms with their reasons for `control`."""

import logging
from collections import deque
from collections.abc import Sequence

from seamlessflow.schemas.records import EvaluationCompleted, ProgressStalled
from seamlessflow.schemas.tokens import shown_step
from seamlessflow.trainer.data.batch import Batch
from seamlessflow.trainer.metrics.sinks import Sink
from seamlessflow.trainer.metrics.trackers import DecodeText, sample_texts
from seamlessflow.trainer.metrics.unlearned import StepMetrics, why_alone, why_no_gradient
from seamlessflow.trainer.settings import TrainerSection
from seamlessflow.trainer.steps.one_step import StepDone

LEARNING = "learning"
ENGINE = "engine mismatch"
"""Values of `ProgressStalled.what`."""
_log = logging.getLogger(__name__)


class Reports:
    """The last steps' metrics, and the alarms that follow from them. Called by the steps."""

    def __init__(
        self, settings: TrainerSection, sinks: Sequence[Sink], decode: DecodeText = str
    ) -> None:
        """`decode` turns token ids into text."""
        self._settings = settings
        self._sinks = sinks
        self._decode = decode
        self._recent: deque[tuple[int, StepMetrics]] = deque(maxlen=settings.explain_after)
        self._alarmed = False
        self._lone = False
        """True once a group with one session is reported."""

    def report_step(self, done: StepDone) -> list[ProgressStalled]:
        """Write a step's metrics to all sinks; return the alarms for `control`."""
        order = done.order
        metrics = done.metrics
        for sink in self._sinks:
            sink.write(shown_step(order.batch.step), order.next_version, done.at_ms, metrics)
        self._write_samples(order.batch)
        _log.info("step %d: %s", shown_step(order.batch.step), _line(metrics))
        alarms = [*self._mismatch(done), *self._lone_group(done)]
        return [*alarms, *self.nothing_learned(metrics, done.at_ms)]

    def report_evaluation(self, evaluation: EvaluationCompleted, named: bool = False) -> None:
        """Write a row for an evaluation round to all sinks, unless no session counted.

        `named`: there are several sets, so each metric's name includes its set's name.
        """
        if evaluation.reward_mean is None:
            return
        metrics = {
            "eval_reward_mean": evaluation.reward_mean,
            "eval_sessions": float(evaluation.sessions),
            "eval_version": float(evaluation.version),
            **_chances(evaluation),
            **{name: value for name, value in _costs(evaluation) if value is not None},
        }
        if named:
            metrics = {f"{name}/{evaluation.split}": value for name, value in metrics.items()}
        for sink in self._sinks:
            sink.write(evaluation.step, evaluation.version, evaluation.at_ms, metrics)

    def nothing_learned(self, metrics: StepMetrics, at_ms: int) -> list[ProgressStalled]:
        """Count a step; return an alarm with the reasons if the last ones had no gradient.

        `trainer.explain_after` says how many; skipped steps count also. The next alarm needs as
        many new steps.
        """
        self._recent.append((at_ms, metrics))
        if len(self._recent) < self._settings.explain_after:
            return []
        reasons = why_no_gradient([step_metrics for _, step_metrics in self._recent])
        if not reasons:
            return []
        since_ms = self._recent[0][0]
        detail = f"{len(self._recent)} steps without a gradient: {'; '.join(reasons)}"
        self._recent.clear()
        _log.warning("nothing is learned: %s", detail)
        return [ProgressStalled(at_ms=at_ms, what=LEARNING, detail=detail, since_ms=since_ms)]

    def _write_samples(self, batch: Batch) -> None:
        """Write a table of sample texts every few steps, from the first on."""
        every = self._settings.samples_every
        if not every or batch.step % every:
            return
        samples = sample_texts(batch, self._settings.samples, self._decode)
        for sink in self._sinks if samples else ():
            sink.write_samples(shown_step(batch.step), samples)

    def close(self) -> None:
        """Close the sinks."""
        for sink in self._sinks:
            sink.close()

    def _lone_group(self, done: StepDone) -> list[ProgressStalled]:
        """Return an alarm at the first group that teaches nothing because it has one session."""
        detail = why_alone(done.order.batch.groups, self._settings.advantage)
        if self._lone or not (detail and self._settings.compares_sessions):
            return []
        self._lone = True
        _log.warning("%s", detail)
        at_ms = done.at_ms
        return [ProgressStalled(at_ms=at_ms, what=LEARNING, detail=detail, since_ms=at_ms)]

    def _mismatch(self, done: StepDone) -> list[ProgressStalled]:
        """Return an alarm when a mismatch begins, not at every step that has one."""
        mean = done.metrics.get("mismatch_mean", 0.0)
        alarm = mean > self._settings.mismatch_alarm
        begins = alarm and not self._alarmed
        self._alarmed = alarm
        if not begins:
            return []
        detail = (
            f"log-probs of engine and trainer differ by {mean:.3g} on average under the same "
            f"weights, more than {self._settings.mismatch_alarm:g}: the engine computes something "
            "different from the trainer (element type, attention, template, weights not loaded)"
        )
        _log.error("step %d: %s", shown_step(done.order.batch.step), detail)
        at_ms = done.at_ms
        return [ProgressStalled(at_ms=at_ms, what=ENGINE, detail=detail, since_ms=at_ms)]


def _line(metrics: StepMetrics) -> str:
    shown = ("reward_mean", "tokens_trained", "loss", "grad_norm", "entropy", "mismatch_mean")
    return ", ".join(f"{name} {metrics[name]:.4g}" for name in shown if name in metrics)


def _chances(evaluation: EvaluationCompleted) -> dict[str, float]:
    """Return the chances to pass and the ends of their intervals, by metric name."""
    named = ("pass_at", "pass_at_low", "pass_at_high", "pass_all", "pass_all_low", "pass_all_high")
    return {
        f"eval_{name}/{k}": chance
        for name in named
        for k, chance in getattr(evaluation, name).items()
    }


def _costs(evaluation: EvaluationCompleted) -> list[tuple[str, float | None]]:
    return [
        ("eval_reward_error", evaluation.reward_error),
        ("eval_turns", evaluation.turns),
        ("eval_sampled_tokens", evaluation.sampled_tokens),
        ("eval_prompt_tokens", evaluation.prompt_tokens),
    ]
