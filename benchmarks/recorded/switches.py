"""One worker's switches between its roles, with their phases, read from a kept log. Pure.

Each phase of a switch begins where the previous one ends. Phases that a process reports itself
(`phases_ms`) lie inside a phase of the switch and bear the record's name.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from seamlessflow.infra.clock import NEVER_MS
from seamlessflow.recorded.audit.sampled_tokens import recorded_session
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.tokens import TOKEN_BYTES

WROTE_TOKENS = r.TurnProgressed | r.TurnCompleted | r.TurnInterrupted
TurnRecord = r.TurnDispatched | WROTE_TOKENS


@dataclass(slots=True)
class Switch:
    """One switch: milliseconds by phase, and milliseconds for what lies inside the phases."""

    role: str
    at_ms: int
    handed_back: int = 0
    phases_ms: dict[str, float] = field(default_factory=dict)
    inside_ms: dict[str, float] = field(default_factory=dict)
    done: bool = False
    _reached_ms: float = 0.0

    def reach(self, phase: str, at_ms: float) -> None:
        """Note a phase's end."""
        self.phases_ms[phase] = at_ms - (self._reached_ms or self.at_ms)
        self._reached_ms = at_ms

    def report(self, phase: str, record: r.RoleAcquired | r.RoleReleased) -> None:
        """Note a phase's end, and what its record says about it.

        What came before the process began, or waited for the other process, is `noticed`.
        """
        self.reach(phase, record.at_ms)
        self.inside_ms[f"{phase}: noticed"] = self.phases_ms[phase] - record.took_ms
        inside = {f"{phase}: {name}": took_ms for name, took_ms in record.phases_ms.items()}
        self.inside_ms |= inside

    @property
    def total_ms(self) -> float:
        """Time from the assignment to the end of the last phase."""
        return sum(self.phases_ms.values())


def switches(
    worker: str, control: Iterable[Record], sessions: Sequence[Record]
) -> dict[str, list[Switch]]:
    """Return a worker's whole switches, by the role that it came to, in order."""
    turns = [
        record for record in sessions if isinstance(record, TurnRecord) and record.worker == worker
    ]
    turns.sort(key=lambda record: record.at_ms)
    begun = list(_switches(worker, control))
    for switch, following in zip(begun, [*begun[1:], None], strict=True):
        if switch.role == "rollout" and "acquired" in switch.phases_ms:
            _serve(switch, turns, following.at_ms if following is not None else NEVER_MS)
    whole: dict[str, list[Switch]] = {"train": [], "rollout": []}
    for switch in begun:
        if switch.done:
            whole[switch.role].append(switch)
    return whole


def tokens_lost(sessions: Sequence[Record], trajectories: Iterable[r.Trajectory]) -> int:
    """Return how many reported tokens of handed-back turns the finished turns lack in their place.

    A worker reported them before it handed the turn back, or with that. A turn counts once it was
    sampled to its end and its session has a trajectory.
    """
    finished = {
        trajectory.session_id: recorded_session(trajectory).turns for trajectory in trajectories
    }
    ended = {_turn(record) for record in sessions if isinstance(record, r.TurnCompleted)}
    handed_back = {
        (*_turn(record), record.dispatch)
        for record in sessions
        if isinstance(record, r.TurnInterrupted) and record.session_id in finished
    }
    lost: set[tuple[tuple[str, str], int, bytes]] = set()
    for record in sessions:
        if not isinstance(record, r.TurnProgressed | r.TurnInterrupted):
            continue
        turn = _turn(record)
        if turn in ended and (*turn, record.dispatch) in handed_back:
            kept = finished[record.session_id].get(record.turn_id)
            whole = b"" if kept is None else bytes(kept.ids)
            lost |= {(turn, *token) for token in _tokens(record) if not _stands(token, whole)}
    return len(lost)


def _turn(record: r.TurnProgressed | r.TurnInterrupted | r.TurnCompleted) -> tuple[str, str]:
    return record.session_id, record.turn_id


def _tokens(record: r.TurnProgressed | r.TurnInterrupted) -> Iterable[tuple[int, bytes]]:
    """Yield each token's place in its turn, and its id."""
    ids = record.token_ids
    for place in range(len(ids) // TOKEN_BYTES):
        start = place * TOKEN_BYTES
        yield record.token_offset + place, ids[start : start + TOKEN_BYTES]


def _stands(token: tuple[int, bytes], whole: bytes) -> bool:
    place, token_id = token
    return whole[place * TOKEN_BYTES : (place + 1) * TOKEN_BYTES] == token_id


def _serve(switch: Switch, turns: Iterable[TurnRecord], until_ms: int) -> None:
    """Add the first turn that the worker got, and its first token.

    If the worker moves on before it has one, the switch is not measured.
    """
    since_ms = switch.at_ms + switch.total_ms
    dispatched: r.TurnDispatched | None = None
    for record in turns:
        if record.at_ms < since_ms:
            continue
        if isinstance(record, r.TurnDispatched):
            dispatched = dispatched or record
        elif dispatched is not None and record.token_ids and record.at_ms <= until_ms:
            switch.reach("dispatched", dispatched.at_ms)
            switch.reach("first token", record.at_ms)
            switch.done = True
            return


def _switches(worker: str, control: Iterable[Record]) -> Iterable[Switch]:
    """Yield the switches that `control` shows; those to rollout lack their first token."""
    switch: Switch | None = None
    committed_ms = 0
    for record in control:
        match record:
            case r.RoleAssigned() if record.worker == worker:
                if switch is not None:
                    yield switch
                switch = Switch(record.role, record.at_ms)
            case _ if switch is None:
                continue
            case r.RoleReleased() if record.worker == worker and record.role != switch.role:
                switch.handed_back = record.handed_back
                switch.report("released", record)
            case r.RoleAcquired() if record.worker == worker and "released" in switch.phases_ms:
                switch.report("acquired", record)
            case r.StepStarted() if "acquired" in switch.phases_ms:
                switch.reach("started", record.at_ms)
            case r.StepCommitted():
                committed_ms = record.at_ms
            case r.StepCompleted() if "started" in switch.phases_ms:
                switch.reach("training", committed_ms - 1000 * record.metrics["train_s"])
                switch.done = True
    if switch is not None:
        yield switch
