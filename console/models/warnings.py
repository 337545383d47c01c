"""Warnings on `control`, each with the settings that help and the page that explains it. Pure."""

from dataclasses import dataclass

from seamlessflow.infra.kafka.client import Received
from seamlessflow.infra.worker.roles import ENDED
from seamlessflow.schemas import records as r

_LONGEST = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWarning:
    """A problem in the run, with its place on `control`."""

    at_ms: int
    offset: int
    kind: str
    text: str
    helps: str = ""
    """Settings and commands that help; empty if the text says it itself."""
    page: str = ""
    """Page in the documentation, with a fragment."""


_STALLS = {
    "rollout": ("scheduler.stall_s, pacing.task_timeout_s", "runbooks/stuck-worker.md"),
    "gang": ("scheduler.assignment_timeout_s, scheduler.stall_s", "runbooks/stuck-worker.md"),
    "step": ("scheduler.stall_s, trainer.micro_batch_tokens", "runbooks/stuck-worker.md"),
    "learning": (
        "run.group_size, trainer.filters.zero_variance, easier tasks",
        "docs/trainer/symptoms.md#the-reward-stays-where-it-is",
    ),
    "agent": ("agents.time_limit_s, agents.command", "docs/trainer/failures.md"),
}
_LAG = ("scheduler.unread_s, more processes of its reader", "runbooks/lag.md")
_PLANS = {
    "no_slot": ("more partitions of prompts", "runbooks/scale-consumers.md"),
    "idle": (
        "scheduler.policy, run.lag",
        "runbooks/stuck-worker.md#nothing-stands-still-and-workers-are-idle",
    ),
}


def warning_of(item: Received) -> RunWarning | None:
    """Return the warning that a record of `control` is, or None."""
    match item.record:
        case r.ProgressStalled() as stalled:
            helps = _stall(stalled)
            return _warning(item, f"stall of {stalled.what}", stalled.detail, helps)
        case r.PlanWarning() as plan:
            helps = _PLANS.get(plan.code, _PLANS["idle"])
            return _warning(item, f"plan: {plan.code}", plan.detail, helps)
        case r.WorkerLost() as lost if lost.reason != ENDED:
            text = f"{lost.process} process of {lost.worker}: {lost.reason}"
            page = "runbooks/crash-recovery.md#a-process-of-a-worker-is-lost"
            return _warning(item, "worker lost", text, ("scheduler.heartbeat_timeout_s", page))
        case r.AssignmentTimedOut() as late:
            text = f"{late.worker} took no {late.role} in {late.waited_ms / 1000:.0f} s"
            helps = ("scheduler.assignment_timeout_s", "runbooks/stuck-worker.md")
            return _warning(item, "assignment timed out", text, helps)
        case r.SampleFailed() as failed:
            reason = next(reversed(failed.detail.splitlines()), failed.cause)
            text = f"sample {failed.sample} of {failed.group_id}: {reason}"
            helps = ("agents.on_timeout, pacing.max_attempts", "docs/trainer/failures.md")
            return _warning(item, "sample failed", text, helps)
        case r.GroupDropped() as dropped:
            text = f"{dropped.group_id}: {dropped.detail or dropped.reason}"
            helps = ("trainer.filters, trainer.on_stale", "docs/trainer/failures.md")
            return _warning(item, f"group dropped: {dropped.reason}", text, helps)
        case r.EvaluationCompleted(reward_mean=None) as evaluated:
            text = f"none of the {evaluated.groups} groups of {evaluated.split} has a reward"
            return _warning(item, "evaluation", text, ("", "docs/trainer/evaluations.md"))
        case r.StepSkipped() as skipped:
            return _warning(item, "step skipped", skipped.reason, ("", "docs/trainer/failures.md"))
    return None


def _stall(stalled: r.ProgressStalled) -> tuple[str, str]:
    if stalled.topic:
        return _LAG
    return _STALLS.get(stalled.what.split()[0], ("scheduler.stall_s", "runbooks/stuck-worker.md"))


def _warning(item: Received, kind: str, text: str, helps: tuple[str, str]) -> RunWarning:
    settings, page = helps
    shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text)} characters)"
    return RunWarning(
        at_ms=item.timestamp_ms,
        offset=item.offset,
        kind=kind,
        text=shown,
        helps=settings,
        page=page,
    )
