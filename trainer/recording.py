"""A recording's survey before a trainer learns from it: its end, and faults that forbid training.

A recording is a topic with trajectories under its own prefix, written by `replay merge` or
`import`. Called by `trainer/bootstrap.py` for `trainer.source_prefix`.
"""

from collections import Counter
from dataclasses import dataclass, field

from seamlessflow.infra.clock import Stopping
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.kafka.client import Received
from seamlessflow.infra.kafka.topics.existing import partition_counts
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import Trajectory
from seamlessflow.schemas.topics import SESSIONS, TRAJECTORIES
from seamlessflow.trainer.data.sessions import is_foreign, is_unscored, without_foreign
from seamlessflow.trainer.settings import TrainerSettings


class RecordingUnusable(SeamlessFlowError):
    """A recording that cannot be trained with these settings."""

    lasting = True

    def __init__(self, topic: str, reason: str) -> None:
        self.topic = topic
        self.reason = reason
        super().__init__(f"{topic} cannot be trained: {reason}")


@dataclass(slots=True)
class Survey:
    """Counts over a recording's sessions, as far as they were read. Pure."""

    policy: str
    tokenizer_hash: str
    train_foreign: bool
    last: dict[int, int] = field(default_factory=dict)
    """The last session's offset, by partition."""
    others: Counter[str] = field(default_factory=Counter)
    """Sessions that belong to other policies, by policy."""
    foreign: int = 0
    """Tokens that are masked because another system sampled them."""
    hashes: Counter[str] = field(default_factory=Counter)
    """Sessions with another tokenizer, by its hash."""
    sessions: int = 0
    """The policy's sessions."""
    trainable: int = 0
    unscored: int = 0
    """Sessions to train whose tokens lack their sampler's log-probs."""

    def apply(self, item: Received) -> None:
        """Count a record."""
        record = item.record
        if not isinstance(record, Trajectory):
            return
        self.last[item.partition] = item.offset
        if record.policy != self.policy:
            self.others[record.policy] += 1
            return
        self.sessions += 1
        # Imported files often do not say with which tokenizer they were made.
        if record.tokenizer_hash != self.tokenizer_hash and not (
            is_foreign(record) and not record.tokenizer_hash
        ):
            self.hashes[record.tokenizer_hash] += 1
        kept = record if self.train_foreign else without_foreign(record)
        self.trainable += len(kept.loss_mask) - kept.loss_mask.count(0)
        self.foreign += kept.masked_tokens.get("foreign", 0)
        self.unscored += is_unscored(kept) and any(kept.loss_mask)

    def fault(self) -> str:
        """Return the reason why the recording cannot be trained; empty if there is none."""
        if not self.last:
            return "it is empty"
        if not self.sessions:
            names = ", ".join(sorted(self.others))
            return f"no session of it is of the policy {self.policy}, but of {names}"
        if self.hashes:
            hashes = ", ".join(name or "none" for name in sorted(self.hashes))
            return (
                f"{self.hashes.total()} of {self.sessions} sessions have the tokenizer_hash "
                f"{hashes}, policy.model has {self.tokenizer_hash}: their tokens mean something "
                "else to it"
            )
        if self.unscored:
            return (
                f"{self.unscored} sessions have no log-probs of their sampler (import --unscored): "
                "name the prefix in trainer.replay.pools"
            )
        if not self.trainable and self.foreign:
            return (
                f"all {self.foreign} tokens that could be trained are of another system: "
                "import them with --train, and set trainer.train_foreign"
            )
        return "" if self.trainable else "no token of it may be trained"


def source_kafka(settings: TrainerSettings) -> KafkaSettings:
    """Return the Kafka settings for the `trajectories` to train: a recording's have its prefix."""
    prefix = settings.trainer.source_prefix
    if prefix is None:
        return settings.kafka
    return settings.kafka.model_copy(update={"topic_prefix": prefix})


def surveyed(settings: TrainerSettings, tokenizer_hash: str, stopping: Stopping) -> Survey:
    """Return the survey of the recording that the settings name.

    Raises `RecordingUnusable`, and the errors of `read_topic`.
    """
    kafka = source_kafka(settings)
    topic = kafka.topic_prefix + TRAJECTORIES.name
    if kafka.topic_prefix + SESSIONS.name in partition_counts(kafka):
        reason = "it belongs to a run, which may still go on: copy it with `replay merge --to`"
        raise RecordingUnusable(topic, reason)
    survey = Survey(settings.run.policy, tokenizer_hash, settings.trainer.train_foreign)
    for item in read_topic(kafka, TRAJECTORIES, Skipped(), stopping=stopping):
        survey.apply(item)
    if reason := survey.fault():
        raise RecordingUnusable(topic, reason)
    return survey
