"""The reasons that trainer and report give for a lack of learning."""

from collections import Counter

import pytest

from seamlessflow.trainer.data.figures.of_batch import StepTokens
from seamlessflow.trainer.metrics.unlearned import (
    CAUSES,
    FEWEST_STEPS,
    why_barren,
    why_little,
    why_no_gradient,
)

NORMAL = {"reward_mean": 0.1, "tokens_trained": 100.0, "groups": 8.0, "sessions": 64.0}


def said(**metrics: float) -> str:
    named = {name.replace("__", "/"): value for name, value in metrics.items()}
    return "\n".join(why_little(0.1, 0.1, [{**NORMAL, **named}] * FEWEST_STEPS))


def test_a_reward_that_rises_needs_no_reasons_for_little_learning() -> None:
    assert why_little(0.1, 0.9, [NORMAL] * FEWEST_STEPS) == []
    assert why_little(None, None, [NORMAL] * FEWEST_STEPS) == []


def test_a_short_run_needs_none_either() -> None:
    assert why_little(0.1, 0.1, [NORMAL] * (FEWEST_STEPS - 1)) == []


def test_equal_rewards_masked_tokens_and_dropped_groups_are_named_with_their_shares() -> None:
    assert "75% of all groups had equal rewards (mean 0.10)" in said(filtered__zero_variance=0.75)
    assert "50% of the sampled tokens were not trained: inexact" in said(masked__inexact=100)
    assert "50% of the groups were dropped as stale" in said(dropped__stale=8)
    assert "50% of the sessions failed" in said(samples_failed=64)


def test_small_losses_are_not_blamed() -> None:
    assert said(masked__cut=1, dropped__stale=0.1).splitlines() == [
        "the mean reward went from 0.100 to 0.100: little or nothing was learned"
    ]


def test_steps_without_a_gradient_are_explained_by_masks_and_dropped_groups() -> None:
    reasons = why_no_gradient([{"masked/inexact": 30.0, "masked/stale": 2.0, "dropped/stale": 4.0}])
    assert reasons == [
        f"94% of the sampled tokens were not trained: inexact (30, {CAUSES['inexact']})",
        f"6% of the sampled tokens were not trained: stale (2, {CAUSES['stale']})",
        "100% of the groups were dropped as stale (4, see GroupDropped)",
    ]


def test_modelled_devices_are_not_expected_to_learn_from_the_tokens_they_had() -> None:
    modelled = {**NORMAL, "modelled_s": 2.0}
    assert why_no_gradient([modelled]) == []
    assert why_little(0.1, 0.9, [modelled]) == [CAUSES["modelled"]]
    untrained = {**modelled, "tokens_trained": 0.0, "masked/stale": 5.0}
    assert why_no_gradient([untrained]) != []


def test_failures_are_named_where_successes_alone_are_imitated() -> None:
    failures = {"success_share": 0.0, "grad_norm": 0.0}
    (reason,) = why_no_gradient([failures] * 3)
    assert reason.startswith("100% of the sessions failed")
    assert "trainer.critic.passes" in reason
    assert why_no_gradient([failures, {"success_share": 0.1}]) == [CAUSES["loss"]]


def test_sessions_that_did_not_count_are_named() -> None:
    (reason,) = why_no_gradient([{"samples_failed": 5.0}])
    assert "failed and did not count (5, see SampleFailed)" in reason


def test_a_loss_that_takes_all_gradients_away_is_named() -> None:
    assert "took the gradient" in why_no_gradient([{"tokens_trained": 5.0}])[0]


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
    reason = why_barren(StepTokens(0, Counter(masked)), dropped, "no such table")
    assert [word for word in words if word not in reason] == []


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
    assert setting in why_barren(StepTokens(0, Counter({reason: 3})), {}, "")
    masked = {f"masked/{reason}": 100.0}
    assert any(setting in text for text in why_no_gradient([masked]))
    assert setting in said(**masked)


def test_a_reason_that_the_table_lacks_is_named_without_a_setting() -> None:
    (reason,) = why_no_gradient([{"masked/new": 3.0}])
    assert reason == "100% of the sampled tokens were not trained: new (3)"
