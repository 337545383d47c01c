"""A rollout worker without threads and connections: the real `Serving` over a recorded engine.

The simulation decides when it reads its slot, samples, advances its turns, changes role or dies.
"""

from collections.abc import Callable

from seamlessflow.infra.errors import DeliveryFailed
from seamlessflow.infra.kafka.producer import OnDelivery
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.settings import TelemetrySettings
from seamlessflow.infra.telemetry.tracing import telemetry
from seamlessflow.producers.rollout.control.registry import UsedRules
from seamlessflow.producers.rollout.turns.admission import Admission
from seamlessflow.producers.rollout.turns.dispatch import DispatchOutput, LiveDispatch
from seamlessflow.producers.rollout.turns.serving import Service, Serving
from seamlessflow.schemas import records as r
from seamlessflow.schemas.topics import CONTROL, FLEET, PROMPTS, SESSIONS, Headers
from tests.builders.records import control, fleet
from tests.properties.choices import Choices
from tests.properties.simulation.engine import RecordedEngine
from tests.properties.simulation.topics import Sending, Topics

_TELEMETRY = telemetry(TelemetrySettings(), "rollout", "test")


class Worker:
    """One incarnation of a worker. `assignment` is the newest of its name."""

    def __init__(
        self,
        name: str,
        incarnation: int,
        slot: int,
        topics: Topics,
        engine: RecordedEngine,
        renderer: Renderer,
        policy: r.PolicyWeights,
        clock: Callable[[], int],
        rules: UsedRules,
    ) -> None:
        self.name = name
        self.incarnation = incarnation
        self.slot = slot
        self.engine = engine
        self.sending = Sending(topics)
        self.alive = True
        self.assignment = 0
        self._topics = topics
        self._service = Service(engine, renderer, policy.policy, policy.max_context, engine.version)
        self._policy = policy.policy
        self._clock = clock
        self._woken: list[LiveDispatch] = []
        self._lost: list[LiveDispatch] = []
        self._position = len(topics.records[PROMPTS.name, slot])
        self.serving = Serving(
            Admission(name, str(incarnation)),
            self._write,
            self._woken.append,
            self._undelivered,
            _TELEMETRY,
            rules,
        )

    @property
    def serves(self) -> bool:
        """Return True if the worker has its role."""
        return self.alive and self.serving.service is not None

    def acquire(self, assignment: int) -> None:
        """Acquire the role."""
        self.assignment = assignment
        self._service.version = self.engine.version
        self.serving.service = self._service
        self._topics.append(
            CONTROL.name,
            0,
            control.acquired(
                self.name,
                assignment=assignment,
                incarnation=str(self.incarnation),
                slot=self.slot,
                slot_offset=self._position,
                version=self.engine.version,
                at_ms=self._clock(),
                policy=self._policy,
            ),
        )

    def leave(self, assignment: int) -> None:
        """Release the role and hand back the turns."""
        self.assignment = assignment
        self.serving.leave("preempted", self._clock())
        released = control.released(
            self.name, assignment=assignment, incarnation=str(self.incarnation), at_ms=self._clock()
        )
        self._topics.append(CONTROL.name, 0, released)

    def load(self, version: int) -> None:
        """Load new weights in the middle of turns."""
        self.engine.version = version
        self.serving.adopt(version, self._clock())
        loaded = control.loaded(
            version,
            policy=self._policy,
            worker=self.name,
            incarnation=str(self.incarnation),
            at_ms=self._clock(),
        )
        self._topics.append(CONTROL.name, 0, loaded)

    def beat(self) -> None:
        """Send a heartbeat."""
        self._topics.append(
            FLEET.name,
            0,
            fleet.heartbeat(
                self.name,
                incarnation=str(self.incarnation),
                role="rollout" if self.serves else "",
                assignment=self.assignment,
                slot=self.slot,
                version=self.engine.version,
                policy=self._policy,
                at_ms=self._clock(),
            ),
        )

    def read(self, most: int) -> bool:
        """Handle records of the slot; return True if there were any."""
        records = self._topics.read((PROMPTS.name, self.slot), self._position, most)
        self._position += len(records)
        for received in records:
            self.serving.receive(received, self._clock())
        self._look_after_woken()
        return bool(records)

    def sample(self, choices: Choices, count: int, tell: bool) -> bool:
        """Sample tokens of one turn; return True if there is one."""
        if not self.engine.running:
            return False
        self.engine.sample(choices.pick(list(self.engine.running.values())), count, tell)
        self._look_after_woken()
        return True

    def look(self) -> None:
        """Advance the turns that are due."""
        self._look_after_woken()
        self.serving.advance_due(self._clock())
        # The simulation loads weights by chance, so a turn never knows that they will come.
        self.serving.begin_overdue(self._clock(), loads=False)

    def break_engine(self) -> None:
        """Let the engine fail, so that the process ends; its last records still arrive."""
        self.engine.fail()
        self._look_after_woken()
        self.serving.leave("engine_failed", self._clock())
        self.sending.flush()
        self.alive = False

    def kill(self, choices: Choices) -> None:
        """End without another record."""
        self.sending.die(choices)
        self.engine.running.clear()
        self.alive = False

    def _look_after_woken(self) -> None:
        while self._lost:
            self.serving.drop(self._lost.pop())
        while self._woken:
            self.serving.advance(self._woken.pop(0), self._clock())

    def _write(
        self, record: DispatchOutput, partition: int, headers: Headers, on_delivery: OnDelivery
    ) -> None:
        self.sending.send(SESSIONS.name, record, partition=partition, on_delivery=on_delivery)

    def _undelivered(self, live: LiveDispatch, error: DeliveryFailed) -> None:
        self._lost.append(live)
