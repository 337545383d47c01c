"""A run's progress: a pure fold over `control` and `fleet`.

Steps and their rewards count from the log's beginning, so that a resumed run continues its
figures. Roles and notices count only from `since_ms`, the start of the present processes.
"""

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean

from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.worker.roles import ENDED
from seamlessflow.scheduler.state.accounts.device_time import DECODING, shares
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.tokens import step_name
from seamlessflow.trainer.metrics.symptoms import shares_of_ended
from seamlessflow.trainer.metrics.unlearned import masked_tokens

RECENT_STEPS = 10
_SPEED_WINDOW_MS = 10_000
_SPEED_STEPS = 2
_NOTICES = 4
_PACE_STEPS = 20
_LIMIT = "ended_at/"
_CUT = "failed_at_limit"
_KINDS_OF_FAILURES = 20
_OF_A_TASK = re.compile(r"[0-9a-f]{8,}|\d+")
"""Parts of an error that differ by task, such as its number; without them, failures are alike."""


@dataclass(frozen=True)
class Step:
    """A completed optimizer step."""

    step: int
    version: int
    at_ms: int
    metrics: Mapping[str, float]

    @property
    def reward(self) -> float | None:
        """Its sessions' mean terminal reward."""
        return self.metrics.get("reward_mean")


@dataclass
class SampleFailures:
    """Samples that failed in the same way."""

    count: int
    first: r.SampleFailed
    """The first of them; its detail has a traceback if there is one."""
    what: str
    """Their error in a line."""


@dataclass
class RunProgress:
    """A run's state; `total` is how many optimizer steps it will have.

    With several policies it is the first one's state, and `others` has the further ones'.
    """

    policy: str
    total: int
    since_ms: int = 0
    others: "dict[str, RunProgress]" = field(default_factory=dict)
    version: int | None = None
    """The policy's newest published version."""
    tokenizer_directory: str = ""
    doing: dict[str, str] = field(default_factory=dict)
    """Each worker's present activity, in a few words."""
    serving: dict[str, int] = field(default_factory=dict)
    """Version that each worker serves; only workers in the rollout role."""
    useful: dict[str, float] = field(default_factory=dict)
    """Useful share of each worker's rollout, in its last report."""
    placed: set[str] = field(default_factory=set)
    """Workers that have taken a role."""
    steps: dict[int, Step] = field(default_factory=dict)
    begun_ms: int | None = None
    """Time when the present processes admitted a first training group, or began a first step."""
    finished: int = 0
    """Steps in the newest `RunFinished`."""
    running_groups: set[str] = field(default_factory=set)
    exploring: set[str] = field(default_factory=set)
    """Explorations that are not ready."""
    ready_groups: set[str] = field(default_factory=set)
    notices: deque[str] = field(default_factory=lambda: deque(maxlen=_NOTICES))
    failures: dict[str, SampleFailures] = field(default_factory=dict)
    """Failed samples by kind: the last line of their description, without numbers."""
    skipped: Skipped = field(default_factory=Skipped)
    """Records that could not be read, and that this progress lacks."""
    now_ms: int = 0
    _joined: set[str] = field(default_factory=set)
    """Incarnations of the present processes, so that earlier ones are not reported."""
    _busy: dict[str, str] = field(default_factory=dict)
    """Incarnation of the process that has, or is to take, each worker's role."""
    _tokens: deque[tuple[int, int]] = field(default_factory=deque)

    @property
    def done(self) -> int:
        """Count of completed optimizer steps."""
        return len(self.steps)

    @property
    def is_finished(self) -> bool:
        """True once each policy's trainer has reported the run's end."""
        others = all(other.is_finished for other in self.others.values())
        return self.finished >= self.total and others

    @property
    def last(self) -> Step | None:
        """The newest completed step; None before the first."""
        return self.steps[max(self.steps)] if self.steps else None

    def apply(self, record: Record) -> None:
        """Fold in the next record of either topic."""
        at_ms = getattr(record, "at_ms", 0)
        self.now_ms = max(self.now_ms, at_ms)
        for other in self.others.values():
            other.apply(record)
        mine = self._own(record)
        match record:
            case r.GroupAdmitted(role=""):
                self._group(record)
            case _ if not mine:
                pass
            case r.PolicyWeights():
                self.version = record.version
                self.tokenizer_directory = record.tokenizer_directory
            case r.StepCompleted():
                self.steps[record.step] = Step(record.step, record.version, at_ms, record.metrics)
            case r.RunFinished():
                self.finished = record.steps
            case r.GroupAdmitted() | r.GroupReady() | r.GroupDropped() | r.GroupConsumed():
                self._group(record)
        # On a resumed run, the log begins with the roles and troubles of processes that are gone.
        if at_ms >= self.since_ms:
            self._activity(record)
            self._notice(record)

    def common_failures(self, most: int = 3) -> list[str]:
        """Return a line for each of the most frequent sample failures, and for the rest."""
        failures = sorted(self.failures.items(), key=lambda entry: -entry[1].count)
        lines = [f"{failed.count} samples failed: {failed.what}" for _, failed in failures[:most]]
        if rest := sum(failed.count for _, failed in failures[most:]):
            lines.append(f"{rest} further samples failed: SampleFailed on control has the reasons")
        if cut := sum(step.metrics.get(_CUT, 0.0) for step in self.steps.values()):
            lines.append(f"{cut:.0f} samples failed after a limit and count: agents.on_limit")
        return lines

    def rewards(self) -> list[float]:
        """Return each step's mean reward, in order."""
        rewards = (self.steps[step].reward for step in sorted(self.steps))
        return [reward for reward in rewards if reward is not None]

    def recent_reward(self, steps_ago: int = 0) -> float | None:
        """Return the mean over ten steps, the last one `steps_ago`; None without a reward."""
        rewards = self.rewards()
        window = rewards[: len(rewards) - steps_ago][-RECENT_STEPS:]
        return fmean(window) if window else None

    def recent_limits(self) -> Mapping[str, float]:
        """Return the share of sessions that each limit ended, over ten steps."""
        recent = [self.steps[number].metrics for number in sorted(self.steps)[-RECENT_STEPS:]]
        return shares_of_ended(recent, _LIMIT, "sessions_ended")

    def masked(self) -> dict[str, int]:
        """Return how many sampled tokens in all steps were not trained, by reason."""
        return masked_tokens([step.metrics for step in self.steps.values()])

    def tokens_per_s(self) -> float:
        """Return the tokens sampled and trained a second, over ten seconds or two steps.

        A worker that rolls out and trains in turns reports tokens in only a part of a step.
        """
        since_ms = self._speed_since_ms()
        recent = sum(tokens for at_ms, tokens in self._tokens if at_ms > since_ms)
        return recent * 1000 / (self.now_ms - since_ms)

    def seconds_left(self) -> float | None:
        """Estimate the run's seconds left at the last steps' pace; None before the first step."""
        ends = self._ends(_PACE_STEPS)
        if len(ends) < 2:
            return None
        pace_ms = (ends[-1] - ends[0]) / (len(ends) - 1)
        return max(0.0, (self.total - self.done) * pace_ms / 1000)

    def _ends(self, steps: int) -> list[int]:
        """Return when the present processes began, then when each step ended: the last few times.

        Empty before they began.
        """
        if self.begun_ms is None:
            return []
        ends = [step.at_ms for step in self.steps.values() if step.at_ms >= self.begun_ms]
        return [self.begun_ms, *sorted(ends)][-steps - 1 :]

    def _speed_since_ms(self) -> int:
        """Return the earlier time: ten seconds ago, or when the last two steps began."""
        return min([self.now_ms - _SPEED_WINDOW_MS, *self._ends(_SPEED_STEPS)[:1]])

    def _own(self, record: Record) -> bool:
        """Return False for a record of another policy."""
        return getattr(record, "policy", "") in ("", self.policy)

    def _group(self, record: Record) -> None:
        match record:
            case r.GroupAdmitted() if record.purpose == "train":
                self.running_groups.add(record.group_id)
                self._begin(record.at_ms)
            case r.GroupAdmitted() if record.purpose == "explore":
                self.exploring.add(record.group_id)
                self._begin(record.at_ms)
            case r.GroupReady() if record.group_id in self.exploring:
                self.exploring.discard(record.group_id)
            # Only groups that were admitted for training, not for evaluations.
            case r.GroupReady() if record.group_id in self.running_groups:
                self.running_groups.discard(record.group_id)
                self.ready_groups.add(record.group_id)
            case r.GroupDropped() | r.GroupConsumed():
                self.exploring.discard(record.group_id)
                self.running_groups.discard(record.group_id)
                self.ready_groups.discard(record.group_id)

    def _begin(self, at_ms: int) -> None:
        if self.begun_ms is None and at_ms >= self.since_ms:
            self.begun_ms = at_ms

    def _activity(self, record: Record) -> None:
        if isinstance(record, r.RoleAssigned | r.RoleAcquired):
            self._busy[record.worker] = record.incarnation
        if isinstance(record, r.RoleAcquired):
            self.placed.add(record.worker)
        match record:
            case r.RoleAssigned():
                self.doing[record.worker] = f"→ {record.role}"
                self.serving.pop(record.worker, None)
            case r.RoleAcquired(role="rollout"):
                self.doing[record.worker] = "rollout"
                if self._own(record):
                    self.serving[record.worker] = record.version or 0
            case r.RoleAcquired():
                self.doing[record.worker] = "waiting to train"
            case r.RoleReleased():
                self.serving.pop(record.worker, None)
            case r.WorkerJoined():
                self._joined.add(record.incarnation)
            case r.WorkerLost() if record.incarnation == self._busy.get(record.worker):
                for shown in (self.doing, self.serving, self.useful, self._busy):
                    shown.pop(record.worker, None)
            case r.StepStarted():
                self._begin(record.at_ms)
                self.doing |= dict.fromkeys(record.workers, f"training {step_name(record.step)}")
            case r.StepCompleted():
                self._stop_training()
            case r.GenerationPaused() if record.worker in self.serving:
                self.doing[record.worker] = "loading weights"
            case r.GenerationResumed() if record.worker in self.serving:
                self.doing[record.worker] = "rollout"
            case r.WeightsLoaded() if record.worker in self.serving:
                self.serving[record.worker] = record.version
            case r.WorkerUsage():
                self._count_usage(record)

    def _stop_training(self) -> None:
        for worker, what in self.doing.items():
            if what.startswith("training"):
                self.doing[worker] = "waiting"

    def _count_usage(self, record: r.WorkerUsage) -> None:
        if record.process == "rollout":
            self.useful[record.worker] = shares(record).get(DECODING, 0.0)
        self._tokens.append((record.at_ms, record.tokens))
        # A report that arrives late may itself be too old to count.
        while self._tokens and self._tokens[0][0] < self._speed_since_ms() - _SPEED_WINDOW_MS:
            self._tokens.popleft()

    def _notice(self, record: Record) -> None:
        match record:
            case r.SampleFailed():
                self._sample_failed(record)
            case r.ProgressStalled():
                self.notices.append(f"{record.what}: {record.detail}")
            case r.GroupDropped(reason="method_failed" | "judge_failed"):
                # Many groups may be dropped for one error of a method, or of a judge.
                if (text := f"groups dropped: {record.detail}") not in self.notices:
                    self.notices.append(text)
            case r.PlanWarning():
                self.notices.append(record.detail)
            case r.WorkerLost(incarnation=incarnation) if (
                incarnation in self._joined and record.reason != ENDED
            ):
                self.notices.append(f"{record.process} of {record.worker} lost: {record.reason}")
            case r.AssignmentTimedOut():
                waited_s = record.waited_ms / 1000
                late = f"{record.worker} took no {record.role} in {waited_s:.0f} s"
                self.notices.append(f"{late}, and is asked again (scheduler.assignment_timeout_s)")
            case r.EvaluationCompleted(reward_mean=None):
                text = f"evaluation {record.split} of version {record.version} has no figure"
                self.notices.append(f"{text}: none of its {record.groups} groups has a reward")

    def _sample_failed(self, record: r.SampleFailed) -> None:
        what = next(reversed(record.detail.splitlines()), record.cause)
        kind = _OF_A_TASK.sub("#", what)
        if kind not in self.failures and len(self.failures) >= _KINDS_OF_FAILURES:
            kind = what = "other reasons"
        self.failures.setdefault(kind, SampleFailures(0, record, what)).count += 1
