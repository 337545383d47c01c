"""The invariants of the design on random histories, compared with a slow oracle."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from seamlessflow.consumers.trajectories.sessions.assemble import trajectory
from seamlessflow.consumers.trajectories.sessions.partition import Partition, PartitionProgress
from seamlessflow.schemas.codec import decode, encode
from seamlessflow.schemas.records import Record, SessionOpened, Trajectory
from tests.builders.trajectories.oracle import ExpectedSession, expected_masked
from tests.builders.trajectories.partition_log import PartitionLog, log_of
from tests.builders.trajectories.random_events import STEPS, Step

HISTORIES = st.lists(STEPS, min_size=20, max_size=80)


class Reading:
    """A partition read from an offset, and the trajectories that result."""

    def __init__(self, progress: PartitionProgress | None = None) -> None:
        self.partition = Partition(0, progress or PartitionProgress(), "manager")
        self.accepted: list[bool] = []
        self.made: dict[str, Trajectory] = {}

    def read(self, log: list[Record], start: int, end: int) -> "Reading":
        for offset in range(start, end):
            record = decode(encode(log[offset]))
            folded = self.partition.apply(record, offset, lambda policy: "arguments")
            self.accepted.append(folded.accepted)
            session = folded.session
            if folded.accepted and session is not None and session.finalized_at_ms is not None:
                self.made[session.session_id] = trajectory(session, 0)
                self.partition.end(session)
        return self

    def bytes_made(self) -> dict[str, bytes]:
        return {name: encode(made) for name, made in self.made.items()}


def whole(history: PartitionLog) -> Reading:
    return Reading().read(history.log, 0, len(history.log))


@settings(deadline=None)
@given(HISTORIES)
def test_exactly_the_accepted_engine_records_make_the_trajectory(steps: list[Step]) -> None:
    """Holds invariant I3."""
    history = log_of(steps)

    reading = whole(history)

    assert reading.accepted == history.accepted
    assert reading.made.keys() == {ended.opened.session_id for ended in history.finalized}
    for session in history.finalized:
        _assert_exact(reading.made[session.opened.session_id], session)


def _assert_exact(made: Trajectory, session: ExpectedSession) -> None:
    tokens = np.frombuffer(made.tokens, "<i4")
    logprobs = np.frombuffer(made.logprobs, "<f4")
    assert len(tokens) == len(logprobs) == len(made.loss_mask)
    assert len(made.nodes) == 2 * len(session.turns)
    versions: dict[int, tuple[int, int]] = {}
    for span, end in zip(
        made.spans, [*(span.start for span in made.spans[1:]), len(tokens)], strict=False
    ):
        versions |= dict.fromkeys(range(span.start, end), (span.version_min, span.version_max))
    end = 0
    for node in made.nodes:
        turn = session.turns[node.node_id // 2]
        assert (node.start, node.turn_id) == (end, turn.started.turn_id)
        end += node.length
        assert tokens[node.start : end].tolist() == session.node(node.node_id)
        mask = list(made.loss_mask[node.start : end])
        if node.node_id % 2 == 0:
            assert (node.parent, node.parent_end) == session.fork(node.node_id)
            assert not any(mask) and not any(logprobs[node.start : end])
            continue
        assert (node.parent, node.parent_end) == (node.node_id - 1, made.nodes[node.parent].length)
        sampled = turn.sampled
        assert logprobs[node.start : end].tolist() == [sample.logprob for sample in sampled]
        assert [versions[at] for at in range(node.start, end)] == [
            sample.versions for sample in sampled
        ]
        reason = session.reason(turn)
        assert node.masked_reason == reason
        trained = [not reason and sample.versions[0] == sample.versions[1] for sample in sampled]
        assert mask == [int(flag) for flag in trained]
    assert end == len(tokens)


@settings(deadline=None)
@given(HISTORIES)
def test_each_sampled_token_has_one_place_and_is_trained_or_counted(steps: list[Step]) -> None:
    """Holds invariant I5."""
    history = log_of(steps)

    made = whole(history).made

    for session in history.finalized:
        record = made[session.opened.session_id]
        sampled = [sample.token for turn in session.turns for sample in turn.sampled]
        assert all(
            np.frombuffer(record.tokens, "<i4").tolist().count(token) == 1 for token in sampled
        )
        assert record.masked_tokens == expected_masked(session)
        assert sum(record.loss_mask) + sum(record.masked_tokens.values()) == len(sampled)


@settings(deadline=None)
@given(HISTORIES, st.integers(0, 100))
def test_the_same_log_gives_the_same_bytes_wherever_a_takeover_reads_from(
    steps: list[Step], cut: int
) -> None:
    """Holds invariant I7."""
    log = log_of(steps).log
    cut %= len(log) + 1
    before = Reading().read(log, 0, cut)
    _, progress = before.partition.committable()

    after = Reading(PartitionProgress.decode(progress.encode())).read(
        log, progress.rebuild, len(log)
    )

    once = Reading().read(log, 0, len(log)).bytes_made()
    assert before.bytes_made().items() <= once.items()
    late = {name for name in once if name not in before.made}
    assert {name: made for name, made in after.bytes_made().items() if name in late} == {
        name: once[name] for name in late
    }


@settings(deadline=None)
@given(HISTORIES, st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=20))
def test_what_counted_once_changes_nothing_when_delivered_again(
    steps: list[Step], again: list[tuple[int, int]]
) -> None:
    """Holds invariant I4."""
    history = log_of(steps)
    # An id is used once, which is decided before it is opened; `twice` opens twice at once.
    counted = [
        number
        for number, event in enumerate(history.log)
        if history.accepted[number] and not isinstance(event, SessionOpened)
    ]
    log = list(enumerate(history.log))
    for which, later in again:
        number = counted[which % len(counted)]
        first = log.index((number, history.log[number]))
        log.insert(first + 1 + later % (len(log) - first), (-1, history.log[number]))

    made = Reading().read([event for _, event in log], 0, len(log)).made

    for name, once in whole(history).made.items():
        assert _without_offsets(made[name]) == _without_offsets(once)


def _without_offsets(made: Trajectory) -> Trajectory:
    nodes = tuple(replace(node, log_offset=0) for node in made.nodes)
    return replace(made, nodes=nodes, first_offset=0, last_offset=0, ignored_events={})
