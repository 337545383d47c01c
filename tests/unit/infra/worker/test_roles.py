"""Keys of `fleet` that a worker's processes read, so that they decode nothing else."""

from dataclasses import replace

from seamlessflow.infra.worker.roles import of_worker
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import fleet_key
from tests.builders.records import fleet


def wanted(record: Record) -> bool:
    return of_worker("w1")(fleet_key(record).encode())


def test_a_worker_reads_its_own_heartbeats_and_no_others() -> None:
    assert wanted(fleet.heartbeat("w1")) and wanted(fleet.heartbeat("w1", process="train"))
    assert not wanted(fleet.heartbeat("w10"))
    assert not wanted(fleet.heartbeat("w"))
    assignment = r.WorkerAssignment(
        worker="w1", incarnation="i", role="train", epoch=1, assignment=1, at_ms=0
    )
    assert wanted(assignment) and not wanted(replace(assignment, worker="w10"))


def test_it_reads_what_concerns_all_workers() -> None:
    snapshot = r.SchedulerSnapshot(epoch=1, control_offset=0, state=b"", at_ms=0)
    trainer = r.TrainerHeartbeat(
        policy="policy", trainer="t", address="a:1", token="x", state="ready", at_ms=0
    )
    assert wanted(snapshot) and wanted(trainer)
