"""Methods that raise an error, or return what nothing can be trained with."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from seamlessflow.infra.errors import KafkaUnavailable
from seamlessflow.trainer.data.advantages import Advantages, ReturnRules
from seamlessflow.trainer.data.batch import prepare, select
from seamlessflow.trainer.data.episodes import Episode
from seamlessflow.trainer.data.filters import FILTERS, GroupView, verdict
from seamlessflow.trainer.data.methods import METHOD_FAILED, MethodFailed, checked_verdict
from seamlessflow.trainer.data.rules import BatchRules
from tests.builders.trainer.groups import NOW, RULES, group


def rules(estimator: Callable[[Sequence[Episode]], Advantages]) -> BatchRules:
    return replace(RULES, estimator=estimator, advantage="ours")


def divided(episodes: Sequence[Episode]) -> Advantages:
    """Return advantages that are divided by the first return, which may be zero."""
    return [
        np.full(len(episode), int(episode.reward) // int(episodes[0].reward))
        for episode in episodes
    ]


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda all_: [np.ones(len(episode)) for episode in all_[1:]], "of 1 sessions, not of 2"),
        (
            lambda all_: [np.ones(len(episode) + 1) for episode in all_],
            "shape [4] for session 0, not [3]",
        ),
        (lambda all_: [np.ones((3, 1)) for _ in all_], "shape [3, 1] for session 0"),
        (
            lambda all_: [np.full(len(episode), np.nan) for episode in all_],
            "nan for session 0, not a fin",
        ),
        (lambda all_: [np.full(len(episode), -np.inf) for episode in all_], "-inf for session 0"),
        (lambda all_: [np.full(len(episode), 1e39) for episode in all_], "1e+39 for session 0"),
        (lambda all_: [None for _ in all_], "shape [] for session 0"),
        (lambda _: None, "TypeError"),
        (divided, "ZeroDivisionError: integer division or modulo by zero"),
    ],
)
def test_what_an_estimator_does_wrong_is_told_with_its_name(
    made: Callable[[Sequence[Episode]], Advantages], words: str
) -> None:
    with pytest.raises(MethodFailed) as raised:
        prepare(group("g", 0, 1), NOW, rules(made))
    assert str(raised.value).startswith("advantage estimator ours failed: ")
    assert words in str(raised.value)


def test_a_group_for_which_a_method_fails_is_dropped_and_others_take_its_place() -> None:
    ready = [group("zero", 0, 1), group("one", 1, 2), group("two", 2, 4)]
    selection = select(ready, 2, NOW, rules(divided))
    assert [prepared.group.group_id for prepared in selection.chosen] == ["one", "two"]
    (lost,) = selection.dropped
    assert lost.group.group_id == "zero" and lost.chains == () and lost.dropped is not None
    assert lost.dropped[0] == METHOD_FAILED
    assert "advantage estimator ours failed: ZeroDivisionError" in lost.dropped[1]


def test_an_error_that_ends_the_process_is_no_error_of_the_method() -> None:
    def away(_: Sequence[Episode]) -> Advantages:
        raise KafkaUnavailable("localhost:9092", 1.0)

    with pytest.raises(KafkaUnavailable):
        select([group("g", 1, 0)], 1, NOW, rules(away))


def test_a_filter_that_raises_is_named() -> None:
    """A return that is no number is more than the filter can compare."""
    name = next(iter(FILTERS))
    nowhere = np.zeros(0, np.int64)
    wrong = Episode("x", np.zeros(0), np.zeros(0, np.int32), lambda: nowhere)  # type: ignore[arg-type]
    with pytest.raises(MethodFailed, match=f"filter {name} failed: "):
        verdict({name: "count"}, GroupView([wrong], []), ReturnRules())


@pytest.mark.parametrize("returned", [None, 1, "yes", np.array([True])])
def test_a_filter_says_yes_or_no(returned: object) -> None:
    with pytest.raises(Exception, match="not True or False"):
        checked_verdict(returned)
    assert checked_verdict(np.bool_(True)) and not checked_verdict(False)
