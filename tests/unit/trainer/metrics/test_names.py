"""Meanings of metrics by their names."""

from seamlessflow.trainer.metrics.names import meaning_of


def test_each_metric_has_its_meaning_and_a_family_that_of_all() -> None:
    assert meaning_of("entropy").startswith("Mean entropy")
    assert meaning_of("masked/stale").startswith("Masked tokens")
    assert meaning_of("mine/score") == ""
