"""An outage of Kafka is logged now and then."""

import logging
import subprocess
import sys
from collections.abc import Callable

import pytest

from seamlessflow.infra.kafka.log import NAME, RateLimit
from seamlessflow.infra.network.addresses import HOST
from tests.paths import ROOT

READING = f"""
import logging
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.settings import KafkaSettings
{{set_up}}
reader = Reader(KafkaSettings(bootstrap_servers="{HOST}:1"), "reader")
for _ in range(20):
    reader.poll(0.1)
reader.close()
"""


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def said(facility: str, client: str, text: str) -> logging.LogRecord:
    arguments = (facility, client, text)
    return logging.LogRecord(NAME, logging.ERROR, "", 0, "%s [%s] %s", arguments, None)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def shown(clock: Clock) -> Callable[[logging.LogRecord], str | None]:
    limit = RateLimit(30, clock)

    def show(record: logging.LogRecord) -> str | None:
        return record.getMessage() if limit.filter(record) else None

    return show


def test_a_message_is_shown_once_and_then_with_what_was_left_out(
    clock: Clock, shown: Callable[[logging.LogRecord], str | None]
) -> None:
    assert shown(said("FAIL", "a", "refused (after 1ms)")) == "FAIL [a] refused (after 1ms)"
    assert shown(said("FAIL", "a", "refused (after 2ms, 3 identical errors suppressed)")) is None
    assert shown(said("FAIL", "b", "refused (after 1ms)")) is None
    clock.now_s += 30
    assert shown(said("FAIL", "a", "refused (after 3ms)")) == (
        "FAIL [a] refused (after 3ms) (2 more like it were left out)"
    )
    clock.now_s += 30
    assert shown(said("FAIL", "a", "refused (after 4ms)")) == "FAIL [a] refused (after 4ms)"


def test_another_kind_of_message_is_shown_at_once(
    shown: Callable[[logging.LogRecord], str | None],
) -> None:
    assert shown(said("FAIL", "a", "refused"))
    assert shown(said("FAIL", "a", "no such host"))
    assert shown(said("ERROR", "a", "refused"))


@pytest.mark.parametrize(
    ("set_up", "lines"), [("logging.basicConfig()", 1), ("", 0)], ids=["process", "command"]
)
def test_a_client_without_a_broker_does_not_flood(set_up: str, lines: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", READING.format(set_up=set_up)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
        check=True,
    )
    assert done.stderr.count("\n") == lines, done.stderr
    assert done.stderr.count("Connection refused") == lines
