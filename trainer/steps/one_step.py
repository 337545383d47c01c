"""One optimizer step from batch to published weights, in the order that survives a kill at any
point.

Train, write down what was trained, `StepCommitted` (acknowledged), weights on disk,
`WeightsPublished` and `PolicyWeights`, `GroupConsumed` each, `StepCompleted`. What is on `control`
up to `StepCommitted` decides what a restarted trainer does again. Runs in a thread of its own.
"""

import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from infra.errors import KafkaUnavailable, SeamlessFlowError
from infra.kafka.producer import Producer
from infra.telemetry.tracing import Telemetry
from schemas.records import GroupConsumed, Record, StepCommitted, StepCompleted
from schemas.topics import CONTROL, FLEET, fleet_key
from trainer.backends.backend import Backend, StepInput
from trainer.data.batch import Batch
from trainer.data.chains import Chain
from trainer.data.packing import MicroBatch, pack
from trainer.recovery import checkpoint
from trainer.recovery.checkpoint import Checkpoint
from trainer.settings import TrainerSettings
from trainer.steps.learning_rate import learning_rate
from trainer.steps.publication import Publication
from trainer.steps.trained import Header, write_trained

_LOOK_S = 4.0
"""How often it is looked whether the process is to end while Kafka does not answer."""


class StepFenced(SeamlessFlowError):
    """A step was trained but not committed, because somebody else leads."""

    def __init__(self, step: int) -> None:
        self.step = step
        super().__init__(f"step {step} is not committed: another trainer leads")

    def __reduce__(self) -> tuple[type["StepFenced"], tuple[int]]:
        return StepFenced, (self.step,)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOrder:
    """A step to execute."""

    batch: Batch
    facts: dict[str, float]
    """Metrics that are known before."""
    version: int
    """Version of the weights that are trained."""
    next_version: int
    """Version the step makes."""
    lineage: str
    parent_lineage: str
    consumed: Collection[str]
    """Groups whose `GroupConsumed` is on the log already."""
    started_ms: int


@dataclass(frozen=True, slots=True)
class StepDone:
    """A step that is over."""

    order: StepOrder
    metrics: dict[str, float]
    at_ms: int


class StepRunner:
    """Executes steps, one at a time."""

    def __init__(
        self,
        settings: TrainerSettings,
        backend: Backend,
        publication: Publication,
        producer: Producer,
        telemetry: Telemetry,
        now_ms: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._backend = backend
        self._publication = publication
        self._producer = producer
        self._telemetry = telemetry
        self._now_ms = now_ms
        self._fenced = threading.Event()
        self._ending = threading.Event()

    def fence(self) -> None:
        """Nothing is committed any more, not even a step under way."""
        self._fenced.set()

    def end_soon(self) -> None:
        """The process is to end: a step under way does not wait for a Kafka that is away."""
        self._ending.set()

    def run(self, order: StepOrder) -> StepDone:
        """Raises `StepFenced` and what back end and Kafka raise; none of it is to be caught."""
        began = time.monotonic()
        with self._telemetry.span("train step", step=order.batch.step):
            metrics = order.facts | self._train(order)
        metrics["train_s"] = time.monotonic() - began
        self._commit(order)
        began = time.monotonic()
        with self._telemetry.span("publish weights", version=order.next_version):
            self._publish(order)
        metrics["publish_s"] = time.monotonic() - began
        return StepDone(order, metrics, self._complete(order, metrics))

    def save(self, content: Checkpoint) -> Path:
        """Write a checkpoint of the weights in memory; return its directory."""
        root, keep = self._settings.checkpoints_dir, self._settings.trainer.checkpoints_kept
        return checkpoint.write(root, content, self._backend.save, keep)

    def rest(self) -> None:
        """End the step for the back end: the device may be given up now."""
        self._backend.rest()

    def _train(self, order: StepOrder) -> dict[str, float]:
        chains, trainer = order.batch.chains(), self._settings.trainer
        batches = pack(chains, order.batch.advantages(), trainer.micro_batch_tokens, trainer.layout)
        rate = learning_rate(trainer.optimizer, order.batch.step, self._settings.run.steps)
        samples = self._samples(chains, order)
        step = StepInput(batches, samples, order.version, rate)
        metrics = dict(self._backend.train(step))
        header = Header(
            step=order.batch.step,
            version=order.next_version,
            lineage=order.lineage,
            policy=self._settings.run.policy,
            tokens=sum(len(batch) for batch in batches),
        )
        write_trained(self._settings.trained_dir, header, chains, batches)
        return metrics

    def _samples(self, chains: Sequence[Chain], order: StepOrder) -> list[MicroBatch]:
        """Some chains with tokens of earlier versions whose weights are at hand."""
        trainer = self._settings.trainer
        there = set(self._backend.remembered()) - {order.version}
        random = np.random.default_rng([trainer.seed, order.batch.step])
        chosen, tokens = list[Chain](), 0
        for place in random.permutation(len(chains)).tolist() if there else ():
            versions_T = chains[place].tokens.versions_T
            if tokens + len(versions_T) <= trainer.mismatch_tokens and there.intersection(
                np.unique(versions_T).tolist()
            ):
                chosen.append(chains[place])
                tokens += len(versions_T)
        advantages = [0.0] * len(chosen)
        return pack(chosen, advantages, trainer.micro_batch_tokens, trainer.layout)

    def _commit(self, order: StepOrder) -> None:
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
            )
        )
        self._flush()
        self._backend.remember(order.next_version)

    def _publish(self, order: StepOrder) -> None:
        published = self._publication.write(
            self._backend, order.next_version, order.batch.step + 1, order.lineage
        )
        self._send(self._publication.announcement(published, order.lineage, self._now_ms()))
        weights = self._publication.policy_weights(published, self._now_ms())
        self._producer.send(FLEET.name, weights, key=fleet_key(weights))

    def _complete(self, order: StepOrder, metrics: dict[str, float]) -> int:
        step, at_ms = order.batch.step, self._now_ms()
        for group in order.batch.members():
            if group.group_id not in order.consumed:
                self._send(GroupConsumed(at_ms=at_ms, group_id=group.group_id, step=step))
        self._send(
            StepCompleted(
                at_ms=at_ms,
                step=step,
                lineage=order.lineage,
                version=order.next_version,
                took_ms=at_ms - order.started_ms,
                metrics=metrics,
            )
        )
        self._flush()
        return at_ms

    def _flush(self) -> None:
        """Raises `KafkaUnavailable`."""
        began, limit_s = time.monotonic(), self._settings.trainer.flush_s
        while True:
            waited_s = time.monotonic() - began
            try:
                return self._producer.flush(min(_LOOK_S, limit_s - waited_s))
            except KafkaUnavailable as error:
                waited_s = time.monotonic() - began
                if waited_s >= limit_s or self._ending.is_set():
                    servers, reason = error.bootstrap_servers, error.reason
                    raise KafkaUnavailable(servers, round(waited_s, 1), reason) from error

    def _send(self, record: Record) -> None:
        self._producer.send(CONTROL.name, record)
