"""Settings of the trainer that name something: each name has what it names, and all have a name."""

from typing import get_args

from trainer.backends.losses import LOSSES
from trainer.data.advantages import ESTIMATORS
from trainer.data.filters import FILTERS
from trainer.settings import EstimatorName, FilterName, LossName


def test_every_name_that_a_setting_accepts_is_registered() -> None:
    assert get_args(LossName) == tuple(LOSSES)
    assert get_args(EstimatorName) == tuple(ESTIMATORS)
    assert get_args(FilterName) == tuple(FILTERS)
