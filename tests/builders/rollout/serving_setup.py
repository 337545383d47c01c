"""The turns of a worker with an engine that samples what the test says."""

from typing import Any

from seamlessflow.infra.kafka.client import Received
from seamlessflow.infra.kafka.producer import OnDelivery
from seamlessflow.infra.settings import TelemetrySettings
from seamlessflow.infra.telemetry.tracing import telemetry
from seamlessflow.producers.rollout.turns.admission import Admission
from seamlessflow.producers.rollout.turns.dispatch import DispatchOutput, LiveDispatch
from seamlessflow.producers.rollout.turns.serving import Service, Serving
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import Headers
from tests.builders.engines.manual import ManualEngine
from tests.builders.records.prompts import INCARNATION, WORKER
from tests.builders.rollout.completions import LetterParser, chunk, codes

NOW = 1_000
TRACE: Headers = (("traceparent", b"00-aa-bb-01"),)


class ServingSetup:
    """A `Serving` with all that it says."""

    def __init__(self) -> None:
        self.engine = ManualEngine()
        self.parser = LetterParser()
        self.written: list[DispatchOutput] = []
        self.places: list[tuple[int, Headers]] = []
        self.deliveries: list[OnDelivery] = []
        self.woken: list[LiveDispatch] = []
        self.undelivered: list[LiveDispatch] = []
        self.serving = Serving(
            Admission(WORKER, INCARNATION),
            self._write,
            self.woken.append,
            lambda live, error: self.undelivered.append(live),
            telemetry(TelemetrySettings(), "rollout", "test"),
        )

    def serve(self, version: int = 7) -> "ServingSetup":
        self.serving.service = Service(self.engine, self.parser, "policy", 50, version)
        return self

    def send(self, record: Record, now_ms: int = NOW) -> None:
        self.serving.receive(Received("prompts", 4, 0, 0, None, TRACE, record), now_ms)

    def sample(self, text: str, reason: Any = None, request_id: str = "turn/1") -> None:
        """The engine samples this; woken turns are looked after."""
        asked = self.engine.submitted[request_id]
        offset = len(asked.completion)
        asked.completion += codes(text)
        asked.on_chunk(chunk(offset, codes(text), reason))
        while self.woken:
            self.serving.advance(self.woken.pop(0), NOW)

    def _write(
        self, record: DispatchOutput, partition: int, headers: Headers, on_delivery: OnDelivery
    ) -> None:
        self.written.append(record)
        self.places.append((partition, headers))
        self.deliveries.append(on_delivery)
