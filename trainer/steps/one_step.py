"""One optimizer step, from the batch to published weights, in an order that survives a kill.

The order: train, the file with trained tokens, `StepCommitted` (acknowledged), weights on disk,
`WeightsPublished` and `PolicyWeights`, `GroupConsumed` for each group, `StepCompleted`. A step
whose `StepCommitted` is on `control` counts. After a restart it is executed again unless a
checkpoint covers it. Runs in the work thread (`Work`).
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.telemetry.tracing import Span, Telemetry
from seamlessflow.schemas.records import GroupConsumed, Record, StepCommitted, StepCompleted
from seamlessflow.schemas.tokens import shown_step, step_name
from seamlessflow.schemas.topics import CONTROL, FLEET, TRAJECTORIES, Headers, fleet_key
from seamlessflow.trainer.backends.backend import Backend, UpdateFailed
from seamlessflow.trainer.data.batch import Batch
from seamlessflow.trainer.data.credit.pairs import pair_facts
from seamlessflow.trainer.data.credit.phase import batch_facts
from seamlessflow.trainer.data.methods import MethodFailed
from seamlessflow.trainer.data.packing import tokens_saved
from seamlessflow.trainer.metrics.phases import Phases, token_rates
from seamlessflow.trainer.recovery import checkpoint
from seamlessflow.trainer.recovery.checkpoint import Checkpoint
from seamlessflow.trainer.settings import TrainerSettings
from seamlessflow.trainer.step_methods import step_methods
from seamlessflow.trainer.steps.annotation import computed, estimated
from seamlessflow.trainer.steps.inputs import Update, of_step, step_updates
from seamlessflow.trainer.steps.publication import Publication
from seamlessflow.trainer.steps.trained import Header, write_trained

_SHOWN = 5
"""Most sessions that a message names."""


class StepFenced(SeamlessFlowError):
    """A step that was trained but not committed, because another trainer leads."""

    def __init__(self, step: int) -> None:
        self.step = step
        super().__init__(f"{step_name(step)} is not committed: another trainer leads")


class StepFailed(SeamlessFlowError):
    """A step that cannot be trained and is not committed; a restart would not change that."""

    lasting = True

    def __init__(self, step: int, reason: str, sessions: Sequence[str] = ()) -> None:
        self.step = step
        self.reason = reason
        self.sessions = tuple(sessions)
        """Known sessions that show the failure."""
        which = f" (sessions {', '.join(self.sessions[:_SHOWN])})" if self.sessions else ""
        super().__init__(
            f"{step_name(step)} is not committed: {reason}{which}; started again, the run goes on "
            "from its last checkpoint, or from its begin"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOrder:
    """A step to execute."""

    batch: Batch
    facts: dict[str, float]
    """Metrics that are known before training."""
    version: int
    """Version whose weights are trained."""
    next_version: int
    """Version that the step makes."""
    lineage: str
    parent_lineage: str
    trained_before: int
    """Steps before this one, without skipped ones: the place in the learning-rate schedule."""
    consumed: Collection[str]
    """Groups whose `GroupConsumed` is on `control` already."""
    started_ms: int
    control_offset: int = -1
    """Offset up to which `control` was read for the batch."""


@dataclass(frozen=True, slots=True)
class StepDone:
    """A finished step with its metrics."""

    order: StepOrder
    metrics: dict[str, float]
    at_ms: int


@dataclass(eq=False)
class StepRunner:
    """The executor of steps, one at a time.

    `fence` and `end_soon` are called by the loop's thread while `run` is in the work thread.
    """

    _settings: TrainerSettings
    _backend: Backend
    _publication: Publication
    _producer: Producer
    _telemetry: Telemetry
    _now_ms: Callable[[], int]
    _fenced: threading.Event = field(default_factory=threading.Event)
    _ending: threading.Event = field(default_factory=threading.Event)
    _copied: Phases = field(default_factory=Phases)
    """Time spent on a checkpoint's copy since the last step; a metric in the next step."""

    def fence(self) -> None:
        """Commit nothing from now on, not even a step under way."""
        self._fenced.set()

    def end_soon(self) -> None:
        """Wait no longer for Kafka's answers, because the process must end."""
        self._ending.set()

    def settle(self) -> None:
        """Wait until the published weights are in their storage. Raises `StorageUnavailable`."""
        self._publication.settle()

    def run(self, order: StepOrder) -> StepDone:
        """Execute a step. Raise `StepFenced`, `StepFailed`, and the back end's and Kafka's errors.

        Callers must not catch an error: after a step that failed half-way the process ends and
        resumes.
        """
        phases, self._copied = self._copied, Phases()
        with self._traced(order) as batch:
            began = time.monotonic()
            with self._telemetry.child(
                "train step", batch.headers, step=shown_step(order.batch.step)
            ):
                order, metrics, trained_sha256 = self._trained(order, phases)
                metrics = order.facts | metrics
            metrics["train_s"] = time.monotonic() - began
            with phases.phase("commit_s"):
                self._commit(order, trained_sha256, batch.headers)
            with (
                phases.phase("publish_s"),
                self._telemetry.child(
                    "publish weights", batch.headers, version=order.next_version
                ) as span,
            ):
                self._publish(order, span.headers)
            metrics |= phases.seconds
            metrics |= token_rates(metrics, self._settings.trainer.epochs)
            return StepDone(order, metrics, self._complete(order, metrics, batch.headers))

    def snapshot(self) -> None:
        """Copy the weights in memory for `save`, before `rest`."""
        with self._copied.phase("checkpoint_s"):
            self._backend.snapshot()

    def save(self, content: Checkpoint) -> Path:
        """Write a checkpoint from the oldest unwritten snapshot; return its directory.

        Any thread may call it.
        """
        root = self._settings.checkpoints_dir
        keep = self._settings.trainer.checkpoints_kept
        return checkpoint.write(root, content, self._backend.save, keep)

    def rest(self, step: int) -> None:
        """End a step for the back end; no further call for the step follows."""
        self._backend.rest(step)

    def _traced(self, order: StepOrder) -> Span:
        """Begin a step's span, with links to the spans of the sessions that it trains."""
        groups = order.batch.members()
        return self._telemetry.process_batch(
            TRAJECTORIES.name,
            order.batch.traces(),
            sum(len(group.sessions) for group in groups),
            step=shown_step(order.batch.step),
            version=order.next_version,
            lineage=order.lineage,
            groups=len(groups),
        )

    def _trained(self, order: StepOrder, phases: Phases) -> tuple[StepOrder, dict[str, float], str]:
        """Train a step; return it as it was trained, its metrics and its file's hash.

        Raises `StepFailed`.
        """
        try:
            return self._train(order, phases)
        except MethodFailed as error:
            raise StepFailed(order.batch.step, str(error)) from error

    def _train(self, order: StepOrder, phases: Phases) -> tuple[StepOrder, dict[str, float], str]:
        with phases.phase("annotate_s"):
            batch = computed(self._settings.trainer, order.batch, self._backend)
        with phases.phase("advantages_s"):
            batch = estimated(self._settings.trainer, batch)
        with phases.phase("update_s"):
            updates = step_updates(
                self._settings,
                batch,
                order.version,
                order.trained_before,
                self._backend.remembered(),
            )
            metrics = of_step([self._updated(order.batch.step, update) for update in updates])
        # Within an epoch, each token is in one update.
        once = [
            (update.chains, update.input.micro_batches) for update in updates if not update.epoch
        ]
        packed = [micro_batch for _, batches in once for micro_batch in batches]
        header = Header(
            step=order.batch.step,
            version=order.next_version,
            lineage=order.lineage,
            policy=self._settings.run.policy,
            tokens=sum(map(len, packed)),
        )
        with phases.phase("commit_s"):
            trained_sha256 = write_trained(self._settings.trained_dir, header, once)
        metrics |= batch_facts(batch) | pair_facts(batch) | tokens_saved(packed)
        return replace(order, batch=batch), metrics, trained_sha256

    def _updated(self, step: int, update: Update) -> Mapping[str, float]:
        """Make an update; return its metrics. Raise `StepFailed`."""
        try:
            return self._backend.train(update.input)
        except UpdateFailed as error:
            sessions = (update.chains[number].session_id for number in error.chains)
            raise StepFailed(step, error.reason, tuple(dict.fromkeys(sessions))) from error

    def _commit(self, order: StepOrder, trained_sha256: str, trace: Headers) -> None:
        if self._fenced.is_set():
            raise StepFenced(order.batch.step)
        self._send(
            StepCommitted(
                at_ms=self._now_ms(),
                step=order.batch.step,
                lineage=order.lineage,
                parent_lineage=order.parent_lineage,
                version=order.next_version,
                groups=order.batch.members(),
                trained_tokens=order.batch.trained_tokens(),
                policy=self._settings.run.policy,
                methods=step_methods(self._settings),
                control_offset=order.control_offset,
                trained_sha256=trained_sha256,
            ),
            trace,
        )
        # No reader may see anything of the new version before the commit is on the log.
        self._producer.settle(self._ending.is_set)
        self._backend.remember(order.next_version)

    def _publish(self, order: StepOrder, trace: Headers) -> None:
        published = self._publication.write(
            self._backend, order.next_version, order.batch.step + 1, order.lineage
        )
        self._send(self._publication.announcement(published, order.lineage, self._now_ms()), trace)
        weights = self._publication.policy_weights(published, self._now_ms())
        self._producer.send(FLEET.name, weights, key=fleet_key(weights), headers=trace)

    def _complete(self, order: StepOrder, metrics: dict[str, float], trace: Headers) -> int:
        step = order.batch.step
        policy = self._settings.run.policy
        at_ms = self._now_ms()
        for group in order.batch.new_groups:
            if (name := group.group.group_id) not in order.consumed:
                consumed = GroupConsumed(at_ms=at_ms, group_id=name, step=step, policy=policy)
                self._send(consumed, trace)
        self._send(
            StepCompleted(
                at_ms=at_ms,
                step=step,
                lineage=order.lineage,
                version=order.next_version,
                took_ms=at_ms - order.started_ms,
                metrics=metrics,
                policy=policy,
            ),
            trace,
        )
        self._producer.settle(self._ending.is_set)
        return at_ms

    def _send(self, record: Record, trace: Headers) -> None:
        self._producer.send(CONTROL.name, record, headers=trace)
