"""Builders of records of `fleet`; see `builder`."""

from seamlessflow.schemas.records import (
    GatewayHeartbeat,
    ManagerStarted,
    PolicyWeights,
    Sampling,
    SchedulerSnapshot,
    WorkerAssignment,
    WorkerHeartbeat,
)
from tests.builders.records.builder import builder

heartbeat = builder(
    WorkerHeartbeat(
        worker="w",
        incarnation="i",
        process="rollout",
        tags=("rollout", "train"),
        role="none",
        assignment=-1,
        state="ready",
        at_ms=0,
    ),
    *("worker", "process", "tags", "incarnation"),
)
gateway = builder(
    GatewayHeartbeat(gateway="g", partition=0, url="http://127.0.0.1:1", in_flight=0, at_ms=0),
    "gateway",
)
manager = builder(ManagerStarted(member="m", manager="manager-m", at_ms=0), "manager")
snapshot = builder(SchedulerSnapshot(epoch=1, control_offset=0, state=b"{}", at_ms=0))
assignment = builder(
    WorkerAssignment(worker="w", incarnation="i", role="rollout", epoch=1, assignment=0, at_ms=0)
)
weights = builder(
    PolicyWeights(
        policy="policy",
        version=0,
        step=0,
        directory="",
        manifest_sha256="",
        tokenizer_directory="",
        tokenizer_hash="",
        renderer=b"{}",
        max_context=100,
        overrides=Sampling(),
        at_ms=0,
    )
)
