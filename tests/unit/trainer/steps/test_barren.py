"""Steps without a token to train: told at the first, and why."""

from collections import Counter
from dataclasses import replace

import pytest

from seamlessflow.trainer.data.batch import SkippedStep
from seamlessflow.trainer.steps.barren import BarrenSteps, NothingToTrain, StepTokens, why
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
    assert "for 4 groups filter ours failed: KeyError" in why(failed, {"method_failed": 4}, "")
    assert not BarrenSteps().add(replace(failed, trainable=1), trained_before=3)


@pytest.mark.parametrize(
    ("masked", "dropped", "words"),
    [
        ({"inexact": 3000}, {"filtered": 4}, ["3,000 of 3,000", "inexact", "policy.top_p"]),
        ({"stale": 1, "inexact": 2}, {}, ["1 of 3", "run.lag", "2 of 3"]),
        ({}, {"failed": 4}, ["4 failed", "the newest: no such table"]),
    ],
)
def test_the_reason_names_the_rule_the_tokens_and_the_setting(
    masked: dict[str, int], dropped: dict[str, int], words: list[str]
) -> None:
    reason = why(StepTokens(0, Counter(masked)), dropped, "no such table")
    assert [word for word in words if word not in reason] == []


def test_a_run_with_nothing_to_train_is_not_started_again() -> None:
    error = NothingToTrain(5, "all is masked")
    assert error.lasting
    assert "trainer.most_barren_steps" in str(error)


@pytest.mark.parametrize(
    ("reason", "setting"),
    [
        ("inexact", "policy.top_p = 1 and policy.top_k = 0"),
        ("inexact_top_p", "policy.top_p = 1, or policy.train_truncated"),
        ("inexact_top_k", "policy.top_k = 0, or policy.train_truncated"),
        ("inexact_json_schema", "force a tool call instead, or set policy.train_inexact"),
        ("inexact_logit_bias", "or set policy.train_inexact"),
        ("inexact_version", "weights were replaced"),
        ("stale", "run.lag"),
        ("undelivered", "policy.train_undelivered"),
        ("abandoned", "policy.siblings = all"),
        ("cancelled", "cancelled their calls"),
        ("no_prefix", "begin with a prompt"),
    ],
)
def test_a_reason_comes_with_the_setting_that_changes_it(reason: str, setting: str) -> None:
    assert setting in why(StepTokens(0, Counter({reason: 3})), {}, "")
