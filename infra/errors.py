"""Errors that several parts raise, all below `SeamlessFlowError`, and the statuses they end with.

Each error carries facts to act on.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any


class ExitStatus(IntEnum):
    """Exit statuses of processes, numbered as in sysexits.h; a supervisor decides by them.

    A process that a signal killed has none of them, and may be started again.
    """

    UNEXPECTED = 1
    """An error that this project does not name, with its traceback; may be started again."""
    PASSING = 75
    """A fault that another start may mend: Kafka was away, a rank of the gang was lost."""
    LASTING = 78
    """A fault that stays until it is mended: a wrong setting, a missing topic, a newer record."""


class SeamlessFlowError(Exception):
    """Base class for everything that this project raises on purpose."""

    lasting: bool | None = None
    """True if another start cannot help, False if it may.

    None: the error lasts only before the process is ready, because it then comes from settings or
    from the machine.
    """

    def process_status(self, ready: bool) -> ExitStatus:
        """Return the status for a process that this error ends, before or after it was ready."""
        lasts = not ready if self.lasting is None else self.lasting
        return ExitStatus.LASTING if lasts else ExitStatus.PASSING

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by attributes: `args` is the message, not what the subclass's `__init__` takes."""
        return Exception.__new__, (type(self), *self.args), self.__dict__


class SettingsRejected(SeamlessFlowError):
    """A setting was refused by the part that uses it, such as librdkafka."""

    lasting = True

    def __init__(self, variable: str, reason: str) -> None:
        self.variable = variable
        self.reason = reason
        super().__init__(f"{variable}: {reason}")


class KafkaUnavailable(SeamlessFlowError):
    """No broker answered at `bootstrap_servers` within `timeout_s`."""

    lasting = False

    def __init__(
        self, bootstrap_servers: str, timeout_s: float, reason: str = "", setting: str = ""
    ) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.timeout_s = timeout_s
        self.reason = reason
        super().__init__(
            f"no Kafka broker answered at {bootstrap_servers} "
            f"(SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS) within {timeout_s:g} s"
            + (f" ({setting})" if setting else "")
            + (f": {reason}" if reason else "")
        )


class KafkaRefused(SeamlessFlowError):
    """An answer from Kafka that stays the same however long a process waits."""

    lasting = True

    def __init__(self, bootstrap_servers: str, reason: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.reason = reason
        super().__init__(
            f"Kafka at {bootstrap_servers} refused this process: {reason}; check the credentials "
            "in kafka.options (SEAMLESSFLOW_KAFKA__OPTIONS) and the permissions (ACL) of its user"
        )


class GroupRefused(SeamlessFlowError):
    """A Kafka consumer group does not take this process, however long it waits."""

    lasting = True

    def __init__(self, group: str, reason: str, mend: str) -> None:
        self.group = group
        self.reason = reason
        super().__init__(f"Kafka consumer group {group} refused this process: {reason}; {mend}")


class MemberReplaced(SeamlessFlowError):
    """Another process has joined a Kafka consumer group under this member's name."""

    lasting = True

    def __init__(self, group: str, instance: str) -> None:
        self.group = group
        self.instance = instance
        super().__init__(f"another process has joined group {group} as {instance!r}")


class JarRejected(SeamlessFlowError):
    """An embedded broker's jar does not have its locked SHA-256; it was not run."""

    def __init__(self, path: str, expected_sha256: str, actual_sha256: str) -> None:
        self.path = path
        self.expected_sha256 = expected_sha256
        self.actual_sha256 = actual_sha256
        super().__init__(
            f"{path} has SHA-256 {actual_sha256}, locked is {expected_sha256}; "
            "delete the file to have it fetched again"
        )


class JarsUnavailable(SeamlessFlowError):
    """Jars for the embedded broker are not in the cache and could not be fetched."""

    def __init__(self, missing: int, cache: str, reason: str) -> None:
        self.missing = missing
        self.cache = cache
        self.reason = reason
        super().__init__(
            f"{missing} jars of the embedded Kafka broker are not in {cache} "
            f"and could not be fetched: {reason}"
        )


class BrokerFailed(SeamlessFlowError):
    """The embedded broker did not start; `log_tail` is its log's end."""

    def __init__(self, reason: str, data_dir: str, log_tail: str = "") -> None:
        self.reason = reason
        self.data_dir = data_dir
        self.log_tail = log_tail
        tail = f"\n--- end of its log ---\n{log_tail}" if log_tail else ""
        super().__init__(f"embedded Kafka broker in {data_dir}: {reason}{tail}")


class BrokerUnusable(BrokerFailed):
    """The embedded broker ended by itself after its start, or cannot write any more."""

    lasting = False


class BrokerLate(BrokerFailed):
    """The embedded broker was not ready in time; `setting` names the limit's setting, if any."""

    lasting = False

    def __init__(self, data_dir: str, limit_s: float, setting: str, log_file: str) -> None:
        self.limit_s = limit_s
        self.setting = setting
        remedy = f"set a larger {setting}, or see" if setting else "try again, or see"
        super().__init__(f"not ready within {limit_s:g} s: {remedy} {log_file}", data_dir)


class DeliveryFailed(SeamlessFlowError):
    """A record was not written to Kafka."""

    lasting = False

    def __init__(
        self, topic: str, partition: int | None, key: str | bytes | None, reason: str
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.key = key
        self.reason = reason
        super().__init__(f"not written to {topic}[{partition}] (key {key!r}): {reason}")


class QueueFull(DeliveryFailed):
    """A record for which its producer has no room while Kafka accepts none."""

    def __init__(self, topic: str, partition: int | None, key: str | bytes | None) -> None:
        super().__init__(topic, partition, key, "the producer's queue is full")


class TopicMismatch(SeamlessFlowError):
    """A topic exists with another partition count than `schemas/topics.py` gives it."""

    lasting = True

    def __init__(self, topic: str, wanted: int, present: int) -> None:
        self.topic = topic
        self.wanted = wanted
        self.present = present
        super().__init__(
            f"topic {topic} has {present} partitions, {wanted} are needed; partition counts never "
            "change: use another topic_prefix or delete the topic"
        )


class PartitionsDiffer(SeamlessFlowError):
    """Topics that must have equally many partitions have, or are to have, different counts."""

    lasting = True

    def __init__(self, counts: Mapping[str, int]) -> None:
        self.counts = dict(counts)
        listed = ", ".join(f"{topic} {count}" for topic, count in counts.items())
        super().__init__(
            f"these topics must have equally many partitions: {listed}; counts never change: ask "
            "for equal ones, use another topic_prefix or delete a topic with its .dlq"
        )


class TopicMissing(SeamlessFlowError):
    """The cluster answers but does not have the topic; `topic` is its full name."""

    lasting = True

    def __init__(self, topic: str, bootstrap_servers: str) -> None:
        self.topic = topic
        self.bootstrap_servers = bootstrap_servers
        super().__init__(
            f"topic {topic} is missing at {bootstrap_servers}; run: seamlessflow topics create"
        )


class NewerRelease(SeamlessFlowError):
    """A record that a newer release wrote. A fold that skipped it would reach another state."""

    lasting = True

    def __init__(self, topic: str, partition: int, offset: int, what: str) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.what = what
        super().__init__(
            f"{topic}[{partition}]@{offset} has {what}: a newer release wrote this; "
            "upgrade this process"
        )


class WrittenReleaseLacks(SeamlessFlowError):
    """A record, or a field in it, that the release to which writing is pinned does not have."""

    lasting = True

    def __init__(self, release: str, record: str, field: str) -> None:
        self.release = release
        self.record = record
        self.field = field
        place = f"{record}.{field} is set, a field" if field else f"{record} is a record"
        super().__init__(
            f"{place} that release {release} does not have; do without it until all processes are "
            "upgraded, or unset kafka.write_release (SEAMLESSFLOW_KAFKA__WRITE_RELEASE) if they are"
        )


class TransactionFailed(SeamlessFlowError):
    """A transaction failed; its producer must not be used again."""

    lasting = False

    def __init__(self, transactional_id: str, reason: str) -> None:
        self.transactional_id = transactional_id
        self.reason = reason
        super().__init__(f"transaction of {transactional_id}: {reason}")


class SpillUnreadable(SeamlessFlowError):
    """The state of a spilled session cannot be read back; another start folds it from the log."""

    lasting = False

    def __init__(self, directory: str, reason: str) -> None:
        self.directory = directory
        self.reason = reason
        super().__init__(f"cannot read back a session that was spilled to {directory}: {reason}")


class BlobUnavailable(SeamlessFlowError):
    """A blob cannot be written or read. `lasting`: it is gone, or no storage is configured."""

    def __init__(self, sha256: str, place: str, reason: str, lasting: bool) -> None:
        self.sha256 = sha256
        self.place = place
        self.reason = reason
        self.lasting = lasting
        super().__init__(f"blob {sha256} in {place}: {reason}")


ENDS_PROCESS: tuple[type[Exception], ...] = (
    MemoryError,
    NewerRelease,
    DeliveryFailed,
    KafkaUnavailable,
    KafkaRefused,
    TransactionFailed,
    WrittenReleaseLacks,
    SettingsRejected,
    SpillUnreadable,
    BlobUnavailable,
)
"""Errors that no single record or session causes; they end the process wherever raised."""
