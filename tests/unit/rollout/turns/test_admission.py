"""Records of a slot that a worker acts on or ignores."""

from seamlessflow.producers.rollout.turns.admission import REMEMBERED_TURNS, Admission
from tests.builders.records.prompts import INCARNATION, WORKER, cancel, generate


def admission() -> Admission:
    return Admission(WORKER, INCARNATION)


def test_a_repeated_dispatch_is_sampled_once() -> None:
    """Holds invariant I4."""
    seen = admission()
    assert seen.admits(generate())
    assert not seen.admits(generate())
    assert seen.ignored == {"repeated": 1}


def test_a_later_dispatch_of_the_same_turn_counts_an_earlier_one_does_not() -> None:
    seen = admission()
    assert seen.admits(generate(dispatch=2))
    assert not seen.admits(generate(dispatch=1))
    assert seen.admits(generate(dispatch=3))


def test_what_is_meant_for_others_is_ignored() -> None:
    seen = admission()
    assert not seen.admits(generate(worker="another"))
    assert not seen.admits(generate(incarnation="an earlier one"))
    assert seen.ignored == {"other_worker": 1, "other_incarnation": 1}
    assert seen.admits(generate())


def test_the_former_owner_of_a_partition_is_ignored_there_and_only_there() -> None:
    seen = admission()
    assert seen.admits(generate(turn_id="a", epoch=3))
    assert not seen.admits(generate(turn_id="b", epoch=2))
    assert seen.admits(generate(turn_id="c", epoch=2, partition=6))
    assert seen.ignored == {"old_epoch": 1}


def test_what_is_meant_for_others_says_nothing_of_epochs() -> None:
    seen = admission()
    assert not seen.admits(generate(worker="another", epoch=9))
    assert seen.admits(generate(epoch=1))


def test_a_cancel_must_be_meant_for_it_and_of_the_newest_owner() -> None:
    seen = admission()
    seen.admits(generate(epoch=2))
    assert not seen.admits_cancel(cancel(epoch=1), 5)
    assert not seen.admits_cancel(cancel(epoch=2, incarnation="an earlier one"), 5)
    assert seen.admits_cancel(cancel(epoch=2), 5)


def test_what_is_remembered_is_bounded() -> None:
    seen = admission()
    for number in range(REMEMBERED_TURNS + 1):
        assert seen.admits(generate(turn_id=str(number)))
    assert seen.admits(generate(turn_id="0"))
    assert not seen.admits(generate(turn_id=str(REMEMBERED_TURNS)))
