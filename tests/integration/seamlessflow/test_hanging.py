"""Commands for transactions that a restart of Kafka left without an end."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from seamlessflow.__main__ import app
from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.broker.programs import SHORT_LIVED
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.kafka.transactions.hanging import warn_of_hanging
from seamlessflow.infra.kafka.transactions.verdicts import IdState
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.topics import ENDED_SESSIONS, REQUESTS, TRAJECTORIES
from tests.builders.brokers.hanging import leave_hanging, leave_open
from tests.waiting import until

HANGS = "transaction of trajectories-hanging (producer 0) hangs in"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.fixture
def unwatched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaSettings]:
    """Yield a broker that leaves transactions as they are, which the environment names."""
    with Broker(tmp_path / "kafka", java=SHORT_LIVED, watches=False) as broker:
        kafka = broker.settings
        monkeypatch.setenv("SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
        create_topics(kafka, [REQUESTS, TRAJECTORIES, ENDED_SESSIONS])
        yield kafka


def test_one_that_hangs_is_named_and_ended_when_that_is_asked_for(
    unwatched: KafkaSettings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    leave_hanging(unwatched, IdState.PREPARE_COMMIT)
    listed = run("topics", "transactions")
    assert listed.exit_code == 1
    assert listed.output.count(HANGS) == 2
    assert "not ended: add --end" in listed.output

    examined = run("doctor", "--out", str(tmp_path))
    assert HANGS in examined.output
    assert "seamlessflow topics transactions --end" in examined.output

    warn_of_hanging(unwatched, lambda: False)
    assert "no committed offsets come: " + HANGS in caplog.text

    ended = run("topics", "transactions", "--end")
    assert (ended.exit_code, ended.output.count("ended")) == (0, 2)
    assert run("topics", "transactions").output == "no transaction of a manager is open\n"
    assert "none hangs" in run("doctor", "--out", str(tmp_path)).output


def test_one_under_way_is_left_alone(unwatched: KafkaSettings) -> None:
    leave_open(unwatched)
    answers: list[Result] = []

    def listed() -> bool:
        answers.append(run("topics", "transactions", "--end"))
        return "is open in" in answers[-1].output

    until(listed, "the list")
    assert answers[-1].exit_code == 0
    assert "under way" in answers[-1].output
    assert "ended" not in answers[-1].output.replace("ended_sessions", "")
