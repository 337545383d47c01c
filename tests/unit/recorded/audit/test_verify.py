"""Trained tokens compared with the tokens that the log says were sampled."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from seamlessflow.recorded.audit.sampled_tokens import sampled_tokens
from seamlessflow.recorded.audit.trained_tokens import TrainedFile
from seamlessflow.recorded.audit.verify import Verification, compare, surviving_steps
from seamlessflow.schemas.records import Record, VersionSpan
from tests.builders.auditing.trained_files import (
    LOGPROB,
    WHOLE_TURN,
    commit_of,
    committed,
    file,
    run,
)
from tests.builders.records import sessions
from tests.builders.records.content import ids, logprobs

NO_CONTINUATIONS: dict[str, dict[str, Any]] = {
    "part of a token": {"token_ids": bytes(5), "logprobs": bytes(5)},
    "a log-prob too few": {"token_ids": ids(8, 9), "logprobs": logprobs(1)},
    "a log-prob too many": {"token_ids": ids(8), "logprobs": logprobs(2)},
    "overlapping": {"token_ids": ids(8), "logprobs": logprobs(1), "token_offset": 0},
    "behind a gap": {"token_ids": ids(8), "logprobs": logprobs(1), "token_offset": 2},
}


def verified(files: Sequence[TrainedFile], events: Sequence[Record]) -> Verification:
    """The files, all committed, against a partition with these events."""
    steps = [commit_of(trained_file) for trained_file in files]
    return compare(steps, files, sampled_tokens((0, event) for event in events))


def test_what_was_sampled_was_trained() -> None:
    verification = verified([file(run([3, 4, 5]))], WHOLE_TURN)

    assert verification == Verification(tokens_checked=3, mismatches=0, trained_twice=0)
    assert verification.clean


def test_a_part_of_a_turn_may_be_left_out() -> None:
    assert verified([file(run([3]), run([5], offset=2))], WHOLE_TURN).clean


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"tokens": [3, 9, 5]}, "id 9, log-prob -0.25, version 0; log: id 4"),
        ({"tokens": [3, 4, 5], "versions": [0, 7, 0]}, "version 7; log: id 4"),
        (
            {
                "tokens": [3, 4, 5],
                "logprobs": [LOGPROB, float(np.nextafter(np.float32(LOGPROB), 0)), LOGPROB],
            },
            "log-prob -0.24999999, version 0; log: id 4, log-prob -0.25",
        ),
    ],
    ids=["id", "version", "log-prob of the neighbouring float"],
)
def test_a_token_that_differs_is_a_mismatch_and_told(wrong: dict[str, Any], what: str) -> None:
    verification = verified([file(run(**wrong))], WHOLE_TURN)

    assert (verification.tokens_checked, verification.mismatches) == (3, 1)
    [deviation] = verification.deviations
    assert (deviation.step, deviation.session, deviation.turn, deviation.offset) == (
        0,
        sessions.SESSION,
        "a",
        1,
    )
    assert what in str(deviation)


@pytest.mark.parametrize(
    "where", [{"offset": 3}, {"offset": -1}, {"turn": "b"}, {"session": "another"}], ids=str
)
def test_a_token_that_was_never_sampled_is_a_mismatch(where: dict[str, Any]) -> None:
    verification = verified([file(run([4], **where))], WHOLE_TURN)

    assert verification.mismatches == 1
    assert "no completed turn on the log has it" in str(verification.deviations[0])


def test_a_line_whose_lists_differ_in_length_agrees_with_nothing() -> None:
    verification = verified([file(run([3, 4, 5], logprobs=[LOGPROB] * 2))], WHOLE_TURN)

    assert (verification.tokens_checked, verification.mismatches) == (3, 3)


def test_only_the_first_few_deviations_are_told() -> None:
    verification = verified([file(run([9] * 12))], WHOLE_TURN)

    assert verification.mismatches == 12
    assert [deviation.offset for deviation in verification.deviations] == [0, 1, 2, 3, 4]


def test_a_continuation_counts_behind_the_tokens_of_the_interrupted_worker() -> None:
    log = [
        sessions.dispatched(),
        sessions.interrupted(ids(3)),
        sessions.progressed(ids(9), token_offset=1),
        sessions.dispatched(dispatch=2, from_offset=1, worker="v"),
        sessions.completed(ids(8), token_offset=1),
        sessions.completed(ids(8), token_offset=0, dispatch=2, worker="v"),
        sessions.completed(ids(8), token_offset=1, dispatch=2, worker="v", incarnation="old"),
        sessions.completed(ids(4), token_offset=1, dispatch=2, worker="v"),
        sessions.completed(ids(7), token_offset=2, dispatch=2, worker="v"),
    ]
    assert verified([file(run([3, 4]))], log).clean
    assert verified([file(run([7], offset=2))], log).mismatches == 1


@pytest.mark.parametrize("kind", [sessions.progressed, sessions.interrupted, sessions.completed])
@pytest.mark.parametrize("wrong", NO_CONTINUATIONS.values(), ids=NO_CONTINUATIONS)
def test_output_that_is_no_continuation_does_not_count(
    wrong: dict[str, Any], kind: Callable[..., Record]
) -> None:
    """Holds what the manager's fold ignores."""
    output = kind(b"", **{"token_offset": 1, **wrong})
    begun: list[Record] = [sessions.dispatched(), sessions.progressed(ids(3))]
    log = [*begun, output, sessions.completed(ids(4), token_offset=1)]
    assert verified([file(run([3, 4]))], log).clean


def test_a_dispatch_that_does_not_follow_the_last_one_does_not_count() -> None:
    log = [
        sessions.dispatched(),
        sessions.dispatched(worker="x"),
        sessions.dispatched(dispatch=3, worker="x"),
        sessions.completed(ids(9), worker="x"),
        sessions.completed(ids(3)),
    ]
    assert verified([file(run([3]))], log).clean


def test_a_decision_of_a_manager_that_lost_the_partition_does_not_count() -> None:
    claim = sessions.claimed(2, partition=0)
    late = [
        sessions.dispatched(dispatch=2, worker="x"),
        sessions.cancelled(),
        sessions.closed(),
    ]
    log = [sessions.dispatched(), claim, *late, sessions.completed(ids(3))]
    assert verified([file(run([3]))], log).clean


def test_a_claim_holds_for_its_own_partition() -> None:
    claim = sessions.claimed(2, partition=1)
    trained = file(run([3]))
    log = [(1, claim), (0, sessions.dispatched()), (0, sessions.completed(ids(3)))]
    assert compare([commit_of(trained)], [trained], sampled_tokens(log)).clean


@pytest.mark.parametrize(
    "end",
    [
        sessions.cancelled(),
        sessions.failed(),
        sessions.failed(epoch=None, dispatch=1, worker="w", incarnation="i"),
        sessions.closed(),
    ],
    ids=lambda end: type(end).__name__,
)
def test_what_is_sampled_behind_the_end_of_its_turn_may_not_be_trained(end: Record) -> None:
    log = [sessions.dispatched(), end, sessions.completed(ids(3))]
    assert verified([file(run([3]))], log).mismatches == 1


def test_a_failure_that_another_dispatch_reports_ends_nothing() -> None:
    other = sessions.failed(epoch=None, dispatch=0, worker="w", incarnation="i")
    log = [sessions.dispatched(), other, sessions.completed(ids(3))]
    assert verified([file(run([3]))], log).clean


def test_a_token_of_a_turn_that_was_not_completed_may_not_be_trained() -> None:
    log = [sessions.dispatched(), sessions.progressed(ids(3))]
    assert verified([file(run([3]))], log).mismatches == 1


def test_a_version_holds_until_the_next_span() -> None:
    first = VersionSpan(start=0, version_min=4, version_max=4)
    second = VersionSpan(start=2, version_min=5, version_max=5)
    log = [
        sessions.dispatched(),
        sessions.progressed(ids(3), spans=(first,)),
        sessions.completed(ids(4, 5), token_offset=1, spans=(second,)),
    ]
    assert verified([file(run([3, 4, 5], versions=[4, 4, 5]))], log).clean
    assert verified([file(run([3, 4, 5], versions=[4, 5, 5]))], log).mismatches == 1


def test_a_token_of_an_uncertain_version_may_not_be_trained() -> None:
    unsure = VersionSpan(start=1, version_min=0, version_max=1)
    sure = VersionSpan(start=0, version_min=0, version_max=0)
    log = [sessions.dispatched(), sessions.completed(ids(3, 4), spans=(sure, unsure))]
    verification = verified([file(run([3, 4], versions=[0, -1]))], log)

    assert verification.mismatches == 1
    assert "version not known exactly" in str(verification.deviations[0])


def test_a_token_in_two_steps_or_twice_in_one_is_trained_twice() -> None:
    """Holds invariant I6."""
    in_two = [file(run([3, 4])), file(run([4, 5], offset=1), step=1, version=2)]
    in_one = [file(run([3, 4]), run([3]))]

    verification = verified(in_two, WHOLE_TURN)
    assert (verification.tokens_checked, verification.mismatches, verification.trained_twice) == (
        4,
        0,
        1,
    )
    assert "token 1: trained 2 times, in steps 1, 2" in str(verification.deviations[0])
    assert verified(in_one, WHOLE_TURN).trained_twice == 1


def test_a_token_that_is_on_no_log_is_trained_twice_all_the_same() -> None:
    verification = verified([file(run([3], turn="b"), run([3], turn="b"))], WHOLE_TURN)
    assert (verification.mismatches, verification.trained_twice) == (2, 1)


def test_of_a_step_done_again_only_the_file_of_the_newest_weights_counts() -> None:
    lost, kept = file(run([3]), version=1), file(run([3]), version=2, lineage="m")
    never_committed = file(run([3]), step=1, version=3, lineage="m")
    steps = surviving_steps([commit_of(lost), commit_of(kept)])
    table = sampled_tokens((0, event) for event in WHOLE_TURN)

    verification = compare(steps, [lost, kept, never_committed], table)

    assert (verification.tokens_checked, verification.trained_twice) == (1, 0)
    assert verification.clean


def test_a_committed_step_without_a_file_is_missed() -> None:
    table = sampled_tokens((0, event) for event in WHOLE_TURN)
    verification = compare([committed(0, 1), committed(1, 2)], [file(run([3]))], table)

    assert verification.steps_missing == (1,)
    assert not verification.clean


def test_a_lineage_stands_on_its_parent_up_to_its_first_step() -> None:
    commits = [
        *(committed(step, step + 1, "a") for step in range(5)),
        committed(2, 6, "b", "a"),
        committed(3, 7, "b", "a"),
        committed(3, 8, "c", "b"),
    ]
    assert [(commit.step, commit.version) for commit in surviving_steps(commits)] == [
        (0, 1),
        (1, 2),
        (2, 6),
        (3, 8),
    ]


def test_a_lineage_that_came_to_nothing_is_passed_over() -> None:
    commits = [
        *(committed(step, step + 1, "a") for step in range(3)),
        committed(1, 4, "b", "a"),
        committed(1, 5, "c", "a"),
    ]
    assert [(commit.step, commit.version) for commit in surviving_steps(commits)] == [
        (0, 1),
        (1, 5),
    ]
    assert surviving_steps([]) == []


def test_a_dispatch_that_came_too_late_uses_up_its_number() -> None:
    log = [
        sessions.dispatched(),
        sessions.progressed(ids(3)),
        sessions.dispatched(dispatch=2, from_offset=0, worker="v"),
        sessions.completed(ids(8), token_offset=1),
        sessions.dispatched(dispatch=3, from_offset=1, worker="v"),
        sessions.completed(ids(4), token_offset=1, dispatch=3, worker="v"),
    ]
    assert verified([file(run([3, 4]))], log).clean
