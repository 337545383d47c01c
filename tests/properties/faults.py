"""Faults planted in a simulation: parts that do one thing wrong, which the checks must notice."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from seamlessflow.consumers.trajectories.acting.actor import Actor
from seamlessflow.consumers.trajectories.decisions.context import Decision
from seamlessflow.consumers.trajectories.matching.match import PromptRenderer
from seamlessflow.consumers.trajectories.sessions.partition import Partition
from seamlessflow.infra.kafka.client import Received
from seamlessflow.infra.kafka.producer import OnDelivery
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import SessionCommand
from tests.builders.records import sessions
from tests.builders.rollout.controlled import LateState
from tests.properties.faulty_managers import (
    CountsNothing,
    DropsAFork,
    MasksTheTrained,
    TrainsTheMasked,
    TrainsTwice,
    WritesItsOwnTime,
)
from tests.properties.simulation.cluster import Parts
from tests.properties.simulation.engine import Generation, RecordedEngine, Sampled
from tests.properties.simulation.managers import SteppedManager
from tests.properties.simulation.stop_rule import RulesWithSums, StopsTurns
from tests.properties.simulation.topics import Sending, Topics

Output = r.TurnProgressed | r.TurnInterrupted | r.TurnCompleted


class TakesOldDispatches(SteppedManager):
    """A manager that accepts late output of an earlier dispatch as the current one's."""

    def _receive(self, received: Received) -> None:
        event = received.record
        if isinstance(event, Output):
            held = self._partitions.get(received.partition)
            session = held.sessions.get(event.session_id) if held else None
            turn = session.running.get(event.turn_id) if session else None
            if turn is not None and turn.worker is not None:
                now: dict[str, Any] = {
                    "dispatch": turn.dispatch,
                    "worker": turn.worker,
                    "incarnation": turn.incarnation,
                }
                received = _with(received, replace(event, **now))
        super()._receive(received)


class ShiftsSpans(SteppedManager):
    """A manager that lets each new version begin one token late."""

    def _receive(self, received: Received) -> None:
        event = received.record
        if isinstance(event, Output) and len(event.spans) > 1:
            first, *others = event.spans
            late = (first, *(replace(span, start=span.start + 1) for span in others))
            received = _with(received, replace(event, spans=late))
        super()._receive(received)


def _with(received: Received, record: Record) -> Received:
    return Received(received.topic, received.partition, received.offset, 0, None, (), record)


class Hasty(Sending):
    """A producer that reports records as delivered when they are only sent."""

    def send_bytes(
        self, topic: str, value: bytes, *place: Any, on_delivery: OnDelivery | None = None
    ) -> None:
        if on_delivery is not None:
            on_delivery(None, 0)
        super().send_bytes(topic, value, *place)


class SendsAtOnce(SteppedManager):
    """A manager that sends prompts before their events are on the log."""

    def sends(self, topics: Topics) -> Sending:
        return Hasty(topics, self._note)


class Forgetful(Actor):
    """An actor that joins a retry to the latest turn with its body, even if that was answered."""

    def _decision(self, partition: Partition, command: SessionCommand) -> Decision:
        decision = super()._decision(partition, command)
        if not isinstance(command, r.RequestTurn) or not command.retry_count:
            return decision
        (event, *_) = decision.events or (None,)
        session = partition.find(command)
        if command.idempotency_key or session is None or not isinstance(event, r.TurnStarted):
            return decision
        equal = [
            turn.started.turn_id
            for turn in session.turns.values()
            if turn.started.body_hash == command.body_hash and turn.state == "completed"
        ]
        return Decision([_join(equal[-1], event)]) if equal else decision


def _join(turn_id: str, started: r.TurnStarted) -> r.TurnJoined:
    return sessions.joined(
        turn_id,
        session_id=started.session_id,
        epoch=started.epoch,
        at_ms=started.at_ms,
        command_id=started.command_id,
        reply=started.reply,
    )


class JoinsTheLatest(SteppedManager):
    """A manager with a forgetful actor."""

    actor_class = Forgetful


class NeverJoins(SteppedManager):
    """A manager that treats no request as a retry."""

    def _receive(self, received: Received) -> None:
        command = received.record
        if isinstance(command, r.RequestTurn):
            alone = replace(command, idempotency_key=None, retry_count=0)
            received = _with(received, alone)
        super()._receive(received)


class Unsteady(Sending):
    """A producer that changes or loses some records."""

    def __init__(
        self,
        topics: Topics,
        sending: Callable[[int, Record], None],
        change: Callable[[Record], Record | None],
    ) -> None:
        super().__init__(topics, sending)
        self._change = change

    def send(self, topic: str, record: Record, **more: Any) -> None:
        changed = self._change(record)
        if changed is not None:
            super().send(topic, changed, **more)


class LosesDeltas(SteppedManager):
    """A manager that loses the deltas of streamed answers."""

    def sends(self, topics: Topics) -> Sending:
        return Unsteady(topics, self._note, _without_deltas)


class LosesEnds(SteppedManager):
    """A manager that loses the answers of failed turns."""

    def sends(self, topics: Topics) -> Sending:
        return Unsteady(topics, self._note, _without_failures)


class ForgetsWhoAskedFirst(SteppedManager):
    """A manager that, once a retry joined, answers only the gateway of the retry."""

    def _receive(self, received: Received) -> None:
        super()._receive(received)
        event = received.record
        if isinstance(event, r.TurnJoined):
            held = self._partitions.get(received.partition)
            session = held.sessions.get(event.session_id) if held else None
            turn = session.turns.get(event.turn_id) if session else None
            if turn is not None:
                del turn.waiting[:-1]


class HidesGuesses(SteppedManager):
    """A manager that does not mark a guess among turns with equal messages."""

    def sends(self, topics: Topics) -> Sending:
        return Unsteady(topics, self._note, _sure)


def _without_deltas(record: Record) -> Record | None:
    return None if isinstance(record, r.ReplyDelta) and record.token_count else record


def _without_failures(record: Record) -> Record | None:
    return None if isinstance(record, r.ReplyFinished) and record.status != 200 else record


def _sure(record: Record) -> Record:
    return replace(record, ambiguous=False) if isinstance(record, r.TurnStarted) else record


class _CutsBridges:
    """The renderer, without the last token of each bridge."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._renderer, name)

    def bridge(self, *asked: Any) -> bytes | None:
        """Return the ids to append, without the last."""
        suffix = self._renderer.bridge(*asked)
        return None if suffix is None else suffix[:-4]


class CutsBridges(SteppedManager):
    """A manager that extends sessions by other tokens than the template has."""

    def renders(self, renderer: Renderer) -> PromptRenderer:
        return _CutsBridges(renderer)


class SamplesOtherTokens(RecordedEngine):
    """An engine that reports other tokens than it sampled."""

    def sample(self, asked: Generation, count: int, tell: bool) -> None:
        super().sample(asked, count, True)
        asked.sampled = [
            Sampled(sample.token + 1, sample.logprob, sample.version) for sample in asked.sampled
        ]


class LateRules(RulesWithSums):
    """Rules whose recorded state is that before the last token."""

    turn = LateState


@dataclass(frozen=True)
class Fault:
    """Parts with a fault, and a pattern of the error by which a check must notice it."""

    parts: Parts
    says: str


FAULTS = {
    manager.__name__: Fault(Parts(manager=manager), says)
    for manager, says in (
        (
            TakesOldDispatches,
            "told other|told another|not what the log accepted|not completed|ignored uncounted",
        ),
        (ShiftsSpans, "I3|not what the log accepted"),
        (TrainsTheMasked, "the mask is not what the reason says"),
        (MasksTheTrained, "the mask is not what the reason says"),
        (TrainsTwice, "I5: a turn is missing, or there twice"),
        (DropsAFork, "I5: a turn is missing, or there twice"),
        (CountsNothing, "ignored uncounted"),
        (WritesItsOwnTime, "I7"),
        (SendsAtOnce, "I1"),
        # Which wrong join is met first depends on the seed; a client that has some deltas of
        # another turn notices it as a gap.
        (JoinsTheLatest, "^joined |a gap before the end|streamed otherwise than told"),
        (NeverJoins, "a key has two turns|a retry began a turn of its own"),
        (LosesDeltas, "a gap"),
        (LosesEnds, "I8"),
        (ForgetsWhoAskedFirst, "I8"),
        (HidesGuesses, "an ambiguity is not marked"),
        (CutsBridges, "not the bridge behind the stored tokens"),
    )
}
FAULTS["LateRules"] = Fault(Parts(manager=StopsTurns, rules=LateRules), "stopped at|not stopped")
FAULTS["SamplesOtherTokens"] = Fault(Parts(engine=SamplesOtherTokens), "I3: another token")
