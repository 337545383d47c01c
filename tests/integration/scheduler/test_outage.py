"""A scheduler during an outage of Kafka: it waits, loses no worker, and ends when asked to."""

import signal
from pathlib import Path

import pytest

from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.broker.programs import SHORT_LIVED
from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.errors import ExitStatus
from seamlessflow.schemas import records as r
from tests.builders.records import control
from tests.builders.scheduler.control_log import ControlLog
from tests.builders.scheduler.fake_worker import FakeWorker
from tests.builders.scheduler.process import scheduler_process
from tests.waiting import until

END_S = 60.0
TIMES = {"scheduler__heartbeat_timeout_s": 5}


@pytest.mark.slow
def test_an_outage_is_waited_for_costs_no_worker_and_leaves_the_claim_as_it_was(
    tmp_path: Path,
) -> None:
    with Broker(tmp_path / "kafka", java=SHORT_LIVED) as broker:
        log, port = ControlLog(broker.settings), int(broker.bootstrap_servers.rpartition(":")[2])
        worker = FakeWorker(broker.settings, "a", ("rollout", "train"))
        with scheduler_process(broker.settings, tmp_path, **TIMES) as running:
            until(lambda: "acts as of epoch 1" in running.words, "the claim")
            log.wait(r.WorkerJoined, count=2)
            broker.stop()
            running.says("no answer from Kafka")
            with Broker(tmp_path / "kafka", port, java=SHORT_LIVED):
                running.says("Kafka answers again")
                log.write(control.batch_ready(at_ms=now_ms()))
                log.wait(r.StepStarted)
                assert not log.all(r.WorkerLost)
                assert len(log.all(r.SchedulerClaimed)) == 1
                log.write(control.claimed(2, "another", at_ms=now_ms()))
                assert running.process.wait(END_S) == ExitStatus.LASTING
                assert "scheduler another claimed epoch 2" in running.words
                worker.close()
                log.close()


@pytest.mark.slow
def test_told_to_end_while_kafka_is_away_it_does(tmp_path: Path) -> None:
    with Broker(tmp_path / "kafka", java=SHORT_LIVED) as broker:
        ControlLog(broker.settings).close()
        with scheduler_process(broker.settings, tmp_path, **TIMES) as running:
            running.says("acts as of epoch 1")
            broker.stop()
            running.process.send_signal(signal.SIGTERM)
            assert running.process.wait(END_S) == ExitStatus.PASSING
            assert "ended before Kafka acknowledged all records" in running.words
            assert "Traceback" not in running.words
