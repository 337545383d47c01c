"""The reasons that trainer and report give for a lack of learning."""

from seamlessflow.trainer.metrics.reasons import (
    FEWEST_STEPS,
    MODELLED,
    reasons_for_little_learning,
    reasons_for_no_gradient,
)

NORMAL = {"reward_mean": 0.1, "tokens_trained": 100.0, "groups": 8.0, "sessions": 64.0}


def said(**metrics: float) -> str:
    named = {name.replace("__", "/"): value for name, value in metrics.items()}
    return "\n".join(reasons_for_little_learning(0.1, 0.1, [{**NORMAL, **named}] * FEWEST_STEPS))


def test_a_reward_that_rises_needs_no_reasons_for_little_learning() -> None:
    assert reasons_for_little_learning(0.1, 0.9, [NORMAL] * FEWEST_STEPS) == []
    assert reasons_for_little_learning(None, None, [NORMAL] * FEWEST_STEPS) == []


def test_a_short_run_needs_none_either() -> None:
    assert reasons_for_little_learning(0.1, 0.1, [NORMAL] * (FEWEST_STEPS - 1)) == []


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
    found = reasons_for_no_gradient(
        [{"masked/inexact": 30.0, "masked/stale": 2.0, "dropped/stale": 4.0}]
    )
    assert found == [
        "94% of the sampled tokens were not trained: inexact (30)",
        "6% of the sampled tokens were not trained: stale (2)",
        "100% of the groups were dropped as stale (4, see GroupDropped)",
    ]


def test_modelled_devices_are_not_expected_to_learn_from_the_tokens_they_had() -> None:
    modelled = {**NORMAL, "modelled_s": 2.0}
    assert reasons_for_no_gradient([modelled]) == []
    assert reasons_for_little_learning(0.1, 0.9, [modelled]) == [MODELLED]
    untrained = {**modelled, "tokens_trained": 0.0, "masked/stale": 5.0}
    assert reasons_for_no_gradient([untrained]) != []


def test_sessions_that_did_not_count_are_named() -> None:
    (found,) = reasons_for_no_gradient([{"samples_failed": 5.0}])
    assert "failed and did not count (5, see SampleFailed)" in found


def test_a_loss_that_takes_all_gradients_away_is_named() -> None:
    assert "took the gradient" in reasons_for_no_gradient([{"tokens_trained": 5.0}])[0]
