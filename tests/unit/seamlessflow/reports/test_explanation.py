from seamlessflow.reports.explanation import FEWEST_STEPS, explanation

NORMAL = {"reward_mean": 0.1, "tokens_trained": 100.0, "groups": 8.0, "sessions": 64.0}


def said(**metrics: float) -> str:
    named = {name.replace("__", "/"): value for name, value in metrics.items()}
    return "\n".join(explanation(0.1, 0.1, [{**NORMAL, **named}] * FEWEST_STEPS))


def test_a_reward_that_rises_needs_no_explanation() -> None:
    assert explanation(0.1, 0.9, [NORMAL] * FEWEST_STEPS) == []
    assert explanation(None, None, [NORMAL] * FEWEST_STEPS) == []


def test_a_short_run_needs_none_either() -> None:
    assert explanation(0.1, 0.1, [NORMAL] * (FEWEST_STEPS - 1)) == []


def test_equal_rewards_masked_tokens_and_dropped_groups_are_told_with_their_shares() -> None:
    assert "75% of all groups had equal rewards (mean 0.10)" in said(filtered__zero_variance=0.75)
    assert "50% of the sampled tokens were not trained: inexact" in said(masked__inexact=100)
    assert "50% of the groups were dropped as stale" in said(dropped__stale=8)
    assert "50% of the sessions failed" in said(samples_failed=64)


def test_small_losses_are_not_blamed() -> None:
    assert said(masked__cut=1, dropped__stale=0.1).splitlines() == [
        "the mean reward went from 0.100 to 0.100: little or nothing was learned"
    ]
