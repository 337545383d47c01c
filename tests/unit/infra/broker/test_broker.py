"""The embedded broker: the line of its log that says why it ended."""

from seamlessflow.infra.broker.broker import cause_in

FULL = """\
2026-11-27T12:59:58.708+0000 [loader] ERROR org.apache.LogDirFailureChannel - Error while writing
java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
2026-11-27T12:59:58.720+0000 [loader] ERROR kafka.server.LogManager - Shutting down
org.apache.kafka.common.errors.KafkaStorageException: Log directory /data is offline
"""
LEFT = """\
2026-11-27T12:59:58.708+0000 [main] ERROR kafka.Kafka$ - Exiting due to a fatal exception
java.lang.RuntimeException: cannot start
\tat kafka.Kafka.main(Kafka.scala)
Caused by: java.net.BindException: Address already in use
\tat java.base/sun.nio.ch.Net.bind0(Native Method)
"""


def test_a_fault_of_the_disk_is_the_cause_of_what_follows() -> None:
    assert cause_in(FULL) == "java.io.IOException: No space left on device"


def test_else_the_innermost_exception_is_the_cause() -> None:
    assert cause_in(LEFT) == "java.net.BindException: Address already in use"


def test_a_log_without_an_exception_names_no_cause() -> None:
    assert cause_in("2026-11-27T12:59:58.708+0000 [main] INFO kafka.Kafka$ - started\n") == ""
