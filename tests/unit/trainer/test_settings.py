"""Settings of the trainer that name something: each name has what it names, and all have a name."""

from typing import get_args

from trainer.backends.losses.corrections import CORRECTIONS
from trainer.backends.losses.surrogates import SURROGATES
from trainer.data.advantages import ESTIMATORS
from trainer.data.filters import FILTERS
from trainer.data.units.aggregations import AGGREGATIONS
from trainer.loss import PRESETS, AggregationName, CorrectionName, LossName, SurrogateName
from trainer.settings import EstimatorName, FilterName


def test_every_name_that_a_setting_accepts_is_registered() -> None:
    assert get_args(LossName) == tuple(PRESETS)
    assert get_args(SurrogateName) == tuple(SURROGATES)
    assert get_args(CorrectionName) == tuple(CORRECTIONS)
    assert get_args(AggregationName) == tuple(AGGREGATIONS)
    assert get_args(EstimatorName) == tuple(ESTIMATORS)
    assert get_args(FilterName) == tuple(FILTERS)
