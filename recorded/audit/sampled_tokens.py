"""Sampled tokens in all completed turns, read only from the raw events on `sessions`. Pure.

This second fold of the log is independent of the trajectory manager's. It gives each completion's
ids, log-probs and policy versions. Output counts only if it comes from the latest dispatch that the
log accepts, and from the worker named there. It must also continue at the next token offset.
Manager events do not count if they have an older epoch and stand behind a newer claim.
`CountedTurn` has a turn's rules, without its tokens; the check of turns uses it too.

A training on recorded sessions has no events: its trainer was given trajectories. Their arrays are
unfolded here, independently of the trainer. Called by `verify.py` and by the check of tokens. `_T`:
the tokens of all turns in one array, and a last entry that stands for "not on the log".
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from seamlessflow.schemas import records as r
from seamlessflow.schemas.arrays import Int32s, Int64s, UInt32s
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.tokens import TOKEN_BYTES

SampledOutput = r.TurnProgressed | r.TurnInterrupted | r.TurnCompleted
Sampler = tuple[int, str | None, str | None]
"""Dispatch, worker and incarnation."""
INEXACT = -1
"""Version for a token if it is not known which of several versions sampled it."""
NOT_SAMPLED = -2
"""Version and id for a token that is not on the log."""
FOREIGN = "foreign"
_SAMPLED = ("policy", FOREIGN)
"""Origins of nodes whose tokens may be trained."""


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """All turns' completions; `numbers` finds a turn by session id and turn id."""

    numbers: Mapping[tuple[str, str], int]
    starts: Int64s
    lengths: Int64s
    ids_T: Int32s
    logprob_bits_T: UInt32s
    """The float32 values as bits, so that equal means equal to the bit."""
    versions_T: Int32s

    def places(self, turns_N: Int64s, offsets_N: Int64s) -> Int64s:
        """Return tokens' places in the arrays, from their turn numbers and token offsets."""
        known_N = turns_N < len(self.starts)
        turns_N = np.where(known_N, turns_N, 0)
        lengths_N = np.append(self.lengths, 0)[turns_N]
        known_N &= (offsets_N >= 0) & (offsets_N < lengths_N)
        return np.where(known_N, np.append(self.starts, 0)[turns_N] + offsets_N, self.nowhere)

    @property
    def nowhere(self) -> int:
        """Place for a token that is not on the log."""
        return len(self.ids_T) - 1

    def describe(self, place: int) -> str:
        """Return a token as text for a message."""
        logprob = self.logprob_bits_T[place].view(np.float32)
        version = self.versions_T[place]
        text = "version not known exactly" if version == INEXACT else f"version {version}"
        return f"id {self.ids_T[place]}, log-prob {logprob!s}, {text}"


@dataclass(slots=True)
class CountedTurn:
    """A turn's dispatch and length. Its methods return True if an event counts."""

    dispatch: int = 0
    sampler: Sampler | None = None
    """Worker whose output counts; None between two dispatches."""
    length: int = 0
    """Token count so far."""
    over: bool = False

    def dispatched(self, record: r.TurnDispatched) -> bool:
        """Take the next dispatch. If it does not begin behind the tokens, it has no sampler."""
        if self.over or record.dispatch != self.dispatch + 1:
            return False
        self.dispatch = record.dispatch
        # A late dispatch uses up its number; its output is not valid.
        behind = record.from_offset == self.length
        self.sampler = sampler_of(record) if behind else None
        return behind

    def sampled(self, record: SampledOutput) -> bool:
        """Add the length of output that continues the turn."""
        size = len(record.token_ids)
        # A repeated or overlapping record does not continue the turn, nor does part of a token.
        if record.token_offset != self.length or size != len(record.logprobs) or size % TOKEN_BYTES:
            return False
        if not self._samples(record):
            return False
        self.length += size // TOKEN_BYTES
        if isinstance(record, r.TurnInterrupted):
            self.sampler = None
        self.over = isinstance(record, r.TurnCompleted)
        return True

    def failed(self, record: r.TurnFailed) -> bool:
        """End the turn, if its worker or a manager reports the failure."""
        # Managers name their epoch; workers do not know it.
        return (record.epoch is not None or self._samples(record)) and self.end()

    def end(self) -> bool:
        """End the turn, unless it is over."""
        before = self.over
        self.over = True
        return not before

    def _samples(self, record: SampledOutput | r.TurnFailed) -> bool:
        return not self.over and self.sampler == sampler_of(record)


@dataclass(slots=True)
class _SampledTurn(CountedTurn):
    """A turn's output so far."""

    ids: bytearray = field(default_factory=bytearray)
    logprobs: bytearray = field(default_factory=bytearray)
    spans: list[r.VersionSpan] = field(default_factory=list)
    completed: bool = False

    def add(self, ids: bytes, logprobs: bytes, spans: Iterable[r.VersionSpan]) -> None:
        """Append output."""
        self.ids += ids
        self.logprobs += logprobs
        self.spans += spans


@dataclass(slots=True)
class SampledSession:
    """A session's turns."""

    turns: dict[str, _SampledTurn] = field(default_factory=dict)
    closed: bool = False

    def turn(self, turn_id: str) -> _SampledTurn:
        """Return the turn; a turn that is new in a closed session is over at once."""
        return self.turns.setdefault(turn_id, _SampledTurn(over=self.closed))


def sampled_tokens(events: Iterable[tuple[int, Record]]) -> SampledTokens:
    """Return the tokens in `events`: pairs of partition and record, in log order per partition."""
    fold = SampledFold()
    for partition, record in events:
        fold.apply(partition, record)
    return tokens_of(fold.sessions)


@dataclass(slots=True)
class SampledFold:
    """State folded from `sessions`."""

    sessions: dict[str, SampledSession] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)

    def count(self, session_id: str) -> int:
        """Return how many tokens are kept for a session."""
        session = self.sessions.get(session_id)
        return 0 if session is None else sum(turn.length for turn in session.turns.values())

    def apply(self, partition: int, record: Record) -> None:
        """Fold in a partition's record."""
        match record:
            case r.TurnProgressed() | r.TurnInterrupted() | r.TurnCompleted():
                self._output(record)
            case r.PartitionClaimed():
                self.epochs[partition] = max(record.epoch, self.epochs.get(partition, record.epoch))
            case r.TurnFailed(epoch=None):  # from a worker
                self._turn(record.session_id, record.turn_id).failed(record)
            case r.TurnDispatched() | r.TurnFailed() | r.TurnCancelled() | r.SessionClosed():
                # A manager that lost the partition may still have written behind the claim.
                if (record.epoch or 0) >= self.epochs.get(partition, 0):
                    self._decided(record)

    def _turn(self, session_id: str, turn_id: str) -> _SampledTurn:
        return self.sessions.setdefault(session_id, SampledSession()).turn(turn_id)

    def _decided(
        self, record: r.TurnDispatched | r.TurnFailed | r.TurnCancelled | r.SessionClosed
    ) -> None:
        """Fold in a decision by the partition's owner."""
        if isinstance(record, r.SessionClosed):
            session = self.sessions.setdefault(record.session_id, SampledSession())
            session.closed = True
            for turn in session.turns.values():
                turn.end()
            return
        turn = self._turn(record.session_id, record.turn_id)
        match record:
            case r.TurnDispatched():
                turn.dispatched(record)
            case r.TurnFailed():
                turn.failed(record)
            case r.TurnCancelled():
                turn.end()

    def _output(self, record: SampledOutput) -> None:
        turn = self._turn(record.session_id, record.turn_id)
        if turn.sampled(record):
            turn.add(record.token_ids, record.logprobs, record.spans)
            turn.completed = turn.over


def sampler_of(record: SampledOutput | r.TurnDispatched | r.TurnFailed) -> Sampler:
    """Return the dispatch that an event names, and its worker."""
    return record.dispatch or 0, record.worker, record.incarnation


def tokens_of(sessions: Mapping[str, SampledSession]) -> SampledTokens:
    """Return the tokens that these sessions' completed turns have."""
    turns = {
        (session_id, turn_id): turn
        for session_id, session in sessions.items()
        for turn_id, turn in session.turns.items()
        if turn.completed
    }
    lengths = np.array([turn.length for turn in turns.values()], np.int64)
    # The last entry of each array; `places` points to it for unknown tokens.
    nothing_T = np.array([NOT_SAMPLED], np.int32)
    ids_T = np.frombuffer(b"".join(turn.ids for turn in turns.values()), "<i4")
    logprobs_T = np.frombuffer(b"".join(turn.logprobs for turn in turns.values()), "<u4")
    versions = [_versions(turn) for turn in turns.values()]
    return SampledTokens(
        numbers={name: number for number, name in enumerate(turns)},
        starts=np.cumsum(lengths) - lengths,
        lengths=lengths,
        ids_T=np.concatenate([ids_T, nothing_T]),
        logprob_bits_T=np.concatenate([logprobs_T, np.zeros(1, np.uint32)]),
        versions_T=np.concatenate([*versions, nothing_T]),
    )


def recorded_session(trajectory: r.Trajectory) -> SampledSession:
    """Return a session's completions; if one has several nodes, they are joined in order."""
    session = SampledSession()
    for node in trajectory.nodes:
        if node.origin in _SAMPLED:
            turn = session.turn(node.turn_id)
            spans = _spans(trajectory, node, turn.length)
            part = slice(node.start * TOKEN_BYTES, (node.start + node.length) * TOKEN_BYTES)
            turn.add(trajectory.tokens[part], trajectory.logprobs[part], spans)
            turn.length = len(turn.ids) // TOKEN_BYTES
            turn.completed = True
    return session


def _versions(turn: _SampledTurn) -> Int32s:
    """Return each token's version in the turn; a span ends where the next begins."""
    versions_T = np.full(turn.length, INEXACT, np.int32)
    for span in turn.spans:
        exact = span.version_min == span.version_max
        versions_T[max(0, span.start) :] = span.version_min if exact else INEXACT
    return versions_T


def _spans(
    trajectory: r.Trajectory, node: r.TrajectoryNode, behind: int
) -> Iterator[r.VersionSpan]:
    """Yield the versions of a node's tokens; its first token is at `behind` in its turn.

    A trajectory's span counts from the start of the arrays, and ends where the next begins.
    """
    spans = sorted(trajectory.spans, key=lambda span: span.start)
    end = node.start + node.length
    ends = [*(min(span.start, end) for span in spans[1:]), end]
    for span, span_end in zip(spans, ends, strict=False):
        start = max(span.start, node.start)
        if start < span_end:
            at = behind + start - node.start
            yield replace(span, start=at)
