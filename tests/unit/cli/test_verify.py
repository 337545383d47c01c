from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from infra.kafka import Received
from schemas import records as r
from schemas.records import Record, VersionSpan
from seamlessflow.verify import Check, SampledTokens, TrainedFile, check, surviving, turns_of
from tests.unit.trajectories import story
from tests.unit.trajectories.story import ids
from trainer.trained import Header, TrainedRun

LOGPROB = -0.25


def run(tokens: Sequence[int], offset: int = 0, **more: Any) -> TrainedRun:
    fields: dict[str, Any] = {
        "session": story.SESSION,
        "turn": "a",
        "offset": offset,
        "ids": list(tokens),
        "logprobs": [LOGPROB] * len(tokens),
        "versions": [0] * len(tokens),
        "advantage": 1.0,
        **more,
    }
    return TrainedRun(**fields)


def file(*runs: TrainedRun, step: int = 0, version: int = 1) -> TrainedFile:
    tokens = sum(len(each.ids) for each in runs)
    header = Header(step=step, version=version, lineage="l", policy="p", tokens=tokens)
    return TrainedFile(header, runs)


def compared(files: list[TrainedFile], *events: Record) -> Check:
    """Holds the files against a log of these events."""
    sampled = SampledTokens(turns_of(files))
    for offset, event in enumerate(events):
        sampled.read(Received("sessions", 0, offset, 0, story.SESSION, (), event))
    return check(files, sampled.turns)


def test_what_was_sampled_is_what_was_trained() -> None:
    log = [
        story.started(),
        story.dispatched(),
        story.progressed(ids(3, 4)),
        story.completed(ids(5), token_offset=2),
    ]
    assert compared([file(run([3, 4, 5]))], *log) == Check(3, 3, 0, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"tokens": [3, 9]},
        {"tokens": [3, 4], "versions": [0, 1]},
        {"tokens": [3, 4], "logprobs": [LOGPROB, float(np.nextafter(np.float32(LOGPROB), 0.0))]},
        {"tokens": [4], "offset": 2},
        {"tokens": [4], "offset": 1, "turn": "b"},
        {"tokens": [4], "offset": 1, "session": "t"},
    ],
)
def test_anything_else_is_a_mismatch(wrong: dict[str, Any]) -> None:
    log = [story.started(), story.dispatched(), story.completed(ids(3, 4))]
    found = compared([file(run(**wrong))], *log)
    assert (found.mismatches, found.tokens_checked) == (1, len(wrong["tokens"]))
    assert "the log says otherwise" in found.examples[0]


def test_a_continuation_counts_from_where_the_interrupted_worker_stopped() -> None:
    log = [
        story.started(),
        story.dispatched(),
        story.interrupted(ids(3)),
        story.progressed(ids(9), token_offset=1),
        story.dispatched(dispatch=2, from_offset=1, worker="v"),
        story.completed(ids(8), token_offset=1),
        story.completed(ids(4), token_offset=1, dispatch=2, worker="v"),
        story.completed(ids(7), token_offset=2, dispatch=2, worker="v"),
    ]
    assert compared([file(run([3, 4]))], *log).mismatches == 0


def test_a_dispatch_that_does_not_fit_does_not_count() -> None:
    log = [
        story.started(),
        story.dispatched(),
        story.dispatched(dispatch=3, worker="x"),
        story.dispatched(dispatch=2, from_offset=1, worker="x"),
        story.completed(ids(3)),
    ]
    assert compared([file(run([3]))], *log).mismatches == 0


def test_a_dispatch_of_a_manager_that_was_fenced_does_not_count() -> None:
    claim = r.PartitionClaimed(partition=0, epoch=2, manager="m", at_ms=0)
    log = [
        story.started(),
        story.dispatched(),
        claim,
        story.dispatched(dispatch=2, worker="x"),
        story.completed(ids(3)),
    ]
    assert compared([file(run([3]))], *log).mismatches == 0


def test_output_behind_the_end_of_a_turn_or_session_does_not_count() -> None:
    cancelled = r.TurnCancelled(session_id="s", epoch=1, at_ms=0, turn_id="a", reason="gone")
    for end in (cancelled, story.closed()):
        log = [story.started(), story.dispatched(), end, story.completed(ids(3))]
        assert compared([file(run([3]))], *log).mismatches == 1


def test_a_token_of_uncertain_version_may_not_have_been_trained() -> None:
    spans = (
        VersionSpan(start=0, version_min=0, version_max=0),
        VersionSpan(start=1, version_min=0, version_max=1),
    )
    log = [story.started(), story.dispatched(), story.completed(ids(3, 4), spans=spans)]
    assert compared([file(run([3, 4]))], *log).mismatches == 1


def test_versions_follow_their_spans() -> None:
    spans = (
        VersionSpan(start=1, version_min=5, version_max=5),
        VersionSpan(start=2, version_min=6, version_max=6),
    )
    log = [
        story.started(),
        story.dispatched(),
        story.progressed(ids(3)),
        story.completed(ids(4, 5), token_offset=1, spans=spans),
    ]
    assert compared([file(run([3, 4, 5], versions=[0, 5, 6]))], *log).mismatches == 0


def test_a_token_in_two_steps_is_trained_twice() -> None:
    log = [story.started(), story.dispatched(), story.completed(ids(3, 4))]
    files = [file(run([3, 4])), file(run([4], offset=1), step=1, version=2)]
    assert compared(files, *log) == Check(3, 3, 0, 1)


def test_of_a_step_that_was_made_again_only_the_last_stands() -> None:
    commits = [
        r.StepCommitted(at_ms=0, step=0, lineage="l", version=1),
        r.StepCommitted(at_ms=1, step=0, lineage="m", version=3),
    ]
    old, new, uncommitted = file(version=1), file(version=3), file(step=1, version=4)
    assert list(surviving([old, new, uncommitted], commits)) == [new]
