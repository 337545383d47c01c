"""An oracle of the fold: the state after a log of `sessions`, computed slowly and in another way.

Tokens are Python numbers, one `Sampled` each; a place in the tree is (turn, True in its sampled
part, tokens of that part); nothing is stored that can be computed again.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import xxhash

from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record

Output = r.TurnProgressed | r.TurnInterrupted | r.TurnCompleted


@dataclass(frozen=True)
class Sampled:
    """A token as an engine reported it."""

    token: int
    logprob: float
    versions: tuple[int, int]


@dataclass(frozen=True)
class Dispatch:
    """A dispatch; one that does not begin at the next token only ends the former one."""

    event: r.TurnDispatched
    counts: bool


@dataclass
class ExpectedTurn:
    """A turn; its prompt is node 2n, what it sampled node 2n + 1."""

    started: r.TurnStarted
    offset: int
    dispatches: list[Dispatch] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    end: str = ""
    left: bool = False
    """True if the client left without the answer and no retry came for it."""

    @property
    def sampled(self) -> list[Sampled]:
        """Return all tokens that were accepted."""
        return [token for output in self.outputs for token in tokens_of(output)]

    @property
    def sampler(self) -> r.TurnDispatched | None:
        """Return the dispatch whose output is accepted now, or None."""
        if self.end or not self.dispatches or not self.dispatches[-1].counts:
            return None
        handed_back = any(
            isinstance(output, r.TurnInterrupted) and output.dispatch == len(self.dispatches)
            for output in self.outputs
        )
        return None if handed_back else self.dispatches[-1].event


@dataclass
class ExpectedSession:
    """A session; `turns` in log order."""

    opened: r.SessionOpened
    offset: int
    turns: list[ExpectedTurn] = field(default_factory=list)
    rewards: list[r.RewardAssigned] = field(default_factory=list)
    commands: set[str | None] = field(default_factory=set)
    leavings: set[str | None] = field(default_factory=set)
    """Commands of clients that left, whether or not they counted."""
    closed: r.SessionClosed | None = None
    finalized: tuple[int, r.SessionFinalized] | None = None

    def turn(self, turn_id: str) -> ExpectedTurn | None:
        """Return the turn, or None if it was not started."""
        return next((turn for turn in self.turns if turn.started.turn_id == turn_id), None)

    def node(self, number: int) -> list[int]:
        """Token ids of a node."""
        turn = self.turns[number // 2]
        return [sample.token for sample in turn.sampled] if number % 2 else ids_of(turn.started)

    def path(self, number: int, end: int) -> list[int]:
        """Token ids from the root through the first `end` tokens of a node."""
        if number < 0:
            return []
        parent = (number - 1, len(self.node(number - 1))) if number % 2 else self.fork(number)
        return self.path(*parent) + self.node(number)[:end]

    def fork(self, prompt: int) -> tuple[int, int]:
        """Return the place that a prompt's node continues."""
        started = self.turns[prompt // 2].started
        return started.parent_node, started.parent_end

    def take(self, event: Record, offset: int) -> bool:
        """Apply an event; return True if it counts."""
        if self.finalized:
            return False
        match event:
            case r.TurnStarted():
                counts = not self.closed and self.turn(event.turn_id) is None
                if counts:
                    self.turns.append(ExpectedTurn(event, offset))
            case r.RewardAssigned():
                counts = event.command_id not in self.commands
                self.rewards += [event] * counts
            case r.SessionClosed():
                counts = self.closed is None
                if counts:
                    self.closed = event
                    for turn in self.turns:
                        turn.end = turn.end or "cut"
            case r.SessionFinalized():
                counts = self.closed is not None
                self.finalized = (offset, event) if counts else None
            case r.CommandRefused():
                counts = True
            case _:
                meant = self.turn(getattr(event, "turn_id", ""))
                counts = meant is not None and self._take_turn(meant, event)
        self.commands |= {getattr(event, "command_id", None)} if counts else set()
        return counts

    def _take_turn(self, turn: ExpectedTurn, event: Record) -> bool:
        if isinstance(event, r.TurnJoined):
            turn.left &= event.command_id in self.commands
            return event.command_id not in self.commands
        if isinstance(event, r.TurnUndelivered) or (
            isinstance(event, r.TurnCancelled) and turn.end == "completed"
        ):
            counts = turn.end == "completed" and event.command_id not in self.leavings
            turn.left |= counts
            self.leavings.add(event.command_id)
            return counts and isinstance(event, r.TurnUndelivered)
        if turn.end:
            return False
        length = len(turn.sampled)
        match event:
            case r.TurnDispatched():
                if event.dispatch != len(turn.dispatches) + 1:
                    return False
                turn.dispatches.append(Dispatch(event, event.from_offset == length))
                return turn.dispatches[-1].counts
            case r.TurnProgressed() | r.TurnInterrupted() | r.TurnCompleted():
                fits = _wrote(turn.sampler, event) and event.token_offset == length
                turn.outputs += [event] * fits
                if fits and isinstance(event, r.TurnCompleted):
                    turn.end = "completed"
                return fits
            case r.TurnFailed():
                fits = event.epoch is not None or _wrote(turn.sampler, event)
                turn.end = "failed" if fits else ""
                return fits
            case r.TurnCancelled():
                self.leavings.add(event.command_id)
                turn.end = "cancelled"
                return True
        return False

    def reason(self, turn: ExpectedTurn) -> str:
        """Return the reason why no token of the turn is trained, or "" if they are trained."""
        last = turn.outputs[-1] if turn.outputs else None
        if not isinstance(last, r.TurnCompleted) or turn.end != "completed":
            return turn.end
        place = self.turns.index(turn)
        prompt = self.path(2 * place, len(self.node(2 * place)))
        if last.prompt_hash != xxhash.xxh3_128_digest(np.array(prompt, np.int32).tobytes()):
            return "prompt_mismatch"
        if not turn.started.behavior_exact:
            return f"inexact_{turn.started.inexact_reason}"
        if turn.started.siblings == "continued" and self._abandoned(place):
            return "abandoned"
        lost = self._lost(place)
        return "undelivered" if lost and not turn.started.train_undelivered else ""

    def _lost(self, place: int) -> bool:
        """Return True if no client got the turn's answer, and no prompt has the whole of it."""
        turn = self.turns[place]
        if not turn.left:
            return False
        last = turn.outputs[-1]
        assert isinstance(last, r.TurnCompleted)
        length = len(turn.sampled)
        enough = {length} if last.finish_reason == "length" else {length - 1, length}
        kept = (self.fork(2 * other) for other in range(len(self.turns)))
        return not any(node == 2 * place + 1 and end in enough - {0} for node, end in kept)

    def _abandoned(self, place: int) -> bool:
        """Return True if the agent went on from another sample of the same prompt."""
        policy = self.turns[place].started.policy
        siblings = [
            number
            for number, turn in enumerate(self.turns)
            if turn.end == "completed"
            and self._position(number) == self._position(place)
            and turn.started.policy == policy
        ]
        siblings = [number for number in siblings if not self._lost(number)] or siblings
        went_on = self._went_on()
        chosen = [number for number in siblings if number in went_on]
        return place not in (chosen or siblings[-1:])

    def _went_on(self) -> set[int]:
        """Return the turns of whose answer a later prompt keeps a token."""
        return {
            turn.started.parent_node // 2
            for turn in self.turns
            if turn.started.parent_node % 2 and turn.started.parent_end > 0
        }

    def _position(self, place: int) -> tuple[int, int]:
        """Return the place at which a turn's prompt ends; equal prompts end at the same place."""
        node, end = 2 * place, len(self.node(2 * place))
        while end == 0 and node >= 0:
            node, end = (node - 1, len(self.node(node - 1))) if node % 2 else self.fork(node)
        return node, end


def ids_of(started: r.TurnStarted) -> list[int]:
    """Return the token ids that a turn adds to the prompt."""
    numbers: list[int] = np.frombuffer(started.suffix_ids, "<i4").tolist()
    return numbers


def tokens_of(output: Output) -> Iterator[Sampled]:
    """The tokens of a record, each with the versions of the span it lies in."""
    ids = np.frombuffer(output.token_ids, "<i4").tolist()
    logprobs = np.frombuffer(output.logprobs, "<f4").tolist()
    for place, (token, logprob) in enumerate(zip(ids, logprobs, strict=True), output.token_offset):
        span = [span for span in output.spans if span.start <= place][-1]
        yield Sampled(token, logprob, (span.version_min, span.version_max))


def expected_masked(session: ExpectedSession) -> Counter[str]:
    """Return the number of sampled tokens that are not trained, by reason."""
    counts: Counter[str] = Counter()
    for turn in session.turns:
        reason = session.reason(turn)
        for token in turn.sampled:
            low, high = token.versions
            if reason or low != high:
                counts[reason or "inexact_version"] += 1
    return counts


def _wrote(sampler: r.TurnDispatched | None, event: Output | r.TurnFailed) -> bool:
    said = event.dispatch, event.worker, event.incarnation
    return sampler is not None and said == (sampler.dispatch, sampler.worker, sampler.incarnation)
