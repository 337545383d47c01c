"""Errors that several parts raise, all below `SeamlessFlowError`. Each carries facts to act on."""

from typing import Any


class SeamlessFlowError(Exception):
    """Base of everything this project raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by attributes: `args` is the message, not what the subclass's `__init__` takes."""
        return Exception.__new__, (type(self), *self.args), self.__dict__


class SettingsRejected(SeamlessFlowError):
    """A setting was refused by the part that uses it, such as librdkafka."""

    def __init__(self, variable: str, reason: str) -> None:
        self.variable = variable
        self.reason = reason
        super().__init__(f"{variable}: {reason}")


class KafkaUnavailable(SeamlessFlowError):
    """No broker answered at `bootstrap_servers` within `timeout_s`."""

    def __init__(self, bootstrap_servers: str, timeout_s: float, reason: str = "") -> None:
        self.bootstrap_servers = bootstrap_servers
        self.timeout_s = timeout_s
        self.reason = reason
        super().__init__(
            f"no Kafka broker answered at {bootstrap_servers} within {timeout_s:g} s"
            + (f": {reason}" if reason else "")
        )


class JarRejected(SeamlessFlowError):
    """A jar of the embedded broker does not have its locked SHA-256; it was not run."""

    def __init__(self, path: str, expected_sha256: str, actual_sha256: str) -> None:
        self.path = path
        self.expected_sha256 = expected_sha256
        self.actual_sha256 = actual_sha256
        super().__init__(
            f"{path} has SHA-256 {actual_sha256}, locked is {expected_sha256}; "
            "delete the file to have it fetched again"
        )


class JarsUnavailable(SeamlessFlowError):
    """Jars of the embedded broker are not in the cache and could not be fetched."""

    def __init__(self, missing: int, cache: str, reason: str) -> None:
        self.missing = missing
        self.cache = cache
        self.reason = reason
        super().__init__(
            f"{missing} jars of the embedded Kafka broker are not in {cache} "
            f"and could not be fetched: {reason}"
        )


class BrokerFailed(SeamlessFlowError):
    """The embedded broker did not start; `log_tail` is the end of its log."""

    def __init__(self, reason: str, data_dir: str, log_tail: str = "") -> None:
        self.reason = reason
        self.data_dir = data_dir
        self.log_tail = log_tail
        tail = f"\n--- end of its log ---\n{log_tail}" if log_tail else ""
        super().__init__(f"embedded Kafka broker in {data_dir}: {reason}{tail}")


class DeliveryFailed(SeamlessFlowError):
    """A record was not written to Kafka."""

    def __init__(
        self, topic: str, partition: int | None, key: str | bytes | None, reason: str
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.key = key
        self.reason = reason
        super().__init__(f"not written to {topic}[{partition}] (key {key!r}): {reason}")


class TopicMismatch(SeamlessFlowError):
    """A topic exists with another partition count than `schemas/topics.py` gives it."""

    def __init__(self, topic: str, wanted: int, found: int) -> None:
        self.topic = topic
        self.wanted = wanted
        self.found = found
        super().__init__(
            f"topic {topic} has {found} partitions, {wanted} are needed; partition counts never "
            "change: use another topic_prefix or delete the topic"
        )


class TopicMissing(SeamlessFlowError):
    """The cluster answers but does not have the topic; `topic` is its full name."""

    def __init__(self, topic: str, bootstrap_servers: str) -> None:
        self.topic = topic
        self.bootstrap_servers = bootstrap_servers
        super().__init__(
            f"topic {topic} is missing at {bootstrap_servers}; run: seamlessflow topics create"
        )


class TransactionFailed(SeamlessFlowError):
    """A transaction failed; its producer must not be used again."""

    def __init__(self, transactional_id: str, reason: str) -> None:
        self.transactional_id = transactional_id
        self.reason = reason
        super().__init__(f"transaction of {transactional_id}: {reason}")
