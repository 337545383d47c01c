"""The command `seamlessflow console`, from its first line to Ctrl-C."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.kafka.unreadable import Raw
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.codec import encode
from seamlessflow.schemas.topics import CONTROL
from tests.builders.console.commands import COMMAND, running, variables
from tests.builders.console.course import STEPS, course_items
from tests.builders.own_topics import small
from tests.builders.records import control
from tests.waiting import until

LIMIT_S = 120


def report(kafka: KafkaSettings, *options: str) -> subprocess.CompletedProcess[str]:
    """Return the result of `seamlessflow report`."""
    command = [*COMMAND, "report", *options]
    return subprocess.run(
        command, capture_output=True, text=True, env=variables(kafka), timeout=LIMIT_S
    )


@pytest.fixture
def producer(kafka: KafkaSettings) -> Iterator[Producer]:
    create_topics(kafka, small(CONTROL))
    made = Producer(kafka, "test")
    yield made
    made.close()


def test_it_serves_pages_that_grow_until_ctrl_c(kafka: KafkaSettings, producer: Producer) -> None:
    producer.send_bytes("control", encode(control.joined("w")), None, 0, None)
    with running(kafka) as (url, process), httpx.Client(base_url=url, timeout=LIMIT_S) as client:
        until(lambda: client.get("/now.json").json()["frame"]["records"] == 1, "the record")
        with client.stream("GET", "/live/now") as live:
            lines = live.iter_lines()
            assert any("1 records" in line for line in lines)
            producer.send_bytes("control", encode(control.joined("later")), None, 0, None)
            assert any("later" in line for line in lines)
            process.send_signal(signal.SIGINT)
            assert process.wait(LIMIT_S) == 0


def test_another_address_needs_the_token_that_is_printed(
    kafka: KafkaSettings, producer: Producer
) -> None:
    with running(kafka, "--host", "0.0.0.0") as (url, process):
        address, _, token = url.partition("?token=")
        local = address.replace("0.0.0.0", "127.0.0.1")
        with httpx.Client(base_url=local, timeout=LIMIT_S, follow_redirects=True) as client:
            assert client.get("/now").status_code == 401
            assert client.get("/now", params={"token": token}).status_code == 200
            assert client.get("/now").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 0


def test_a_report_is_one_file_about_what_is_there(
    kafka: KafkaSettings, producer: Producer, tmp_path: Path
) -> None:
    for item in course_items():
        assert isinstance(item.record, Raw)
        producer.send_bytes("control", item.record.value, None, 0, None)
    producer.flush(LIMIT_S)
    file = tmp_path / "mine.html"
    done = report(kafka, "--no-audit", "--to", str(file))
    assert done.returncode == 0, done.stderr
    text = file.read_text()
    assert f"{STEPS} steps" in text
    assert "settings changed" in text


def test_a_report_into_no_folder_is_refused_at_once(kafka: KafkaSettings, tmp_path: Path) -> None:
    done = report(kafka, "--to", str(tmp_path / "none" / "mine.html"))
    assert done.returncode == 2
    assert "there is no folder" in done.stderr
