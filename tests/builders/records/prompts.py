"""Builders of records that a manager sends to a worker; see `builder`."""

from seamlessflow.schemas.records import CancelGeneration, GenerateTurn, Sampling
from seamlessflow.schemas.tokens import pack
from tests.builders.records.builder import builder

WORKER = "worker-0"
INCARNATION = "inc-1"

generate = builder(
    GenerateTurn(
        session_id="session",
        turn_id="turn",
        dispatch=1,
        epoch=1,
        partition=5,
        worker=WORKER,
        incarnation=INCARNATION,
        prompt_ids=pack([1, 2, 3]),
        prompt_hash=b"hash",
        completion_ids=b"",
        sampling=Sampling(max_tokens=100),
        stream=False,
        policy="policy",
        deadline_ms=100_000,
    )
)
cancel = builder(
    CancelGeneration(
        session_id="session",
        turn_id="turn",
        dispatch=1,
        epoch=1,
        worker=WORKER,
        incarnation=INCARNATION,
        reason="client_gone",
    )
)
