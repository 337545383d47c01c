"""Steps without a token to train: told at the first, and why."""

from collections import Counter
from dataclasses import replace

import pytest

from seamlessflow.trainer.data.batch import SkippedStep
from seamlessflow.trainer.data.figures.of_batch import StepTokens
from seamlessflow.trainer.metrics.unlearned import why_barren
from seamlessflow.trainer.steps.barren import BarrenSteps, NothingToTrain
from tests.builders.trainer.fed_dataloader import FedDataloader
from tests.builders.trainer.groups import RULES

MASKED = StepTokens(0, Counter(inexact=7))


def skipped(masked: str = "", rewards: tuple[float, float] = (1, 1)) -> StepTokens:
    """Return the tokens of a step that lost all its groups, filtered ones to the setting `drop`."""
    rules = replace(RULES, filters={"zero_variance": "drop", "untrainable": "drop"})
    feed = FedDataloader(rules=rules)
    for number in range(6):
        feed.group(f"g-{number}", rewards, masked=masked)
    assert feed.next() == SkippedStep(0)
    return feed.loader.given_up


def test_the_first_barren_step_of_a_row_is_reported() -> None:
    barren, good = BarrenSteps(), StepTokens(7, Counter(inexact=3))
    begun = [barren.add(tokens, 1) for tokens in (MASKED, MASKED, good, MASKED)]
    assert begun == [True, False, False, True]
    assert barren.count == 1


@pytest.mark.parametrize("trained_before", [0, 3])
def test_groups_with_equal_rewards_that_the_setting_drops_could_be_trained(
    trained_before: int,
) -> None:
    barren = BarrenSteps()
    assert not barren.add(skipped(), trained_before)
    assert barren.count == 0


@pytest.mark.parametrize("rewards", [(1, 0), (1, 1)])
def test_groups_that_are_masked_whole_make_a_step_barren(rewards: tuple[float, float]) -> None:
    assert BarrenSteps().add(skipped("inexact", rewards), trained_before=3)


def test_groups_that_were_lost_make_a_step_barren_only_before_the_first_trained_one() -> None:
    assert BarrenSteps().add(StepTokens(), trained_before=0)
    assert not BarrenSteps().add(StepTokens(), trained_before=1)


def test_a_method_that_fails_for_all_groups_makes_a_step_barren_at_any_time() -> None:
    failed = StepTokens(failed=4, failure="filter ours failed: KeyError: 'a'")
    assert BarrenSteps().add(failed, trained_before=3)
    assert "for 4 groups filter ours failed: KeyError" in why_barren(
        failed, {"method_failed": 4}, ""
    )
    assert not BarrenSteps().add(replace(failed, trainable=1), trained_before=3)


def test_a_run_with_nothing_to_train_is_not_started_again() -> None:
    error = NothingToTrain(5, "all is masked")
    assert error.lasting
    assert "trainer.most_barren_steps" in str(error)
