"""Offsets of a checkpoint against what the topics keep."""

import pytest

from seamlessflow.trainer.recovery.recorded_log import RecordsGone, refuse_gone

PLACE = ("trajectories", 3)


@pytest.mark.parametrize("at", [10, 15, 20])
def test_an_offset_that_is_kept_or_comes_next_is_good(at: int) -> None:
    refuse_gone({PLACE: at}, {PLACE: (10, 20)})


@pytest.mark.parametrize("at", [9, 21])
def test_an_offset_outside_is_refused_with_topic_partition_and_both_offsets(at: int) -> None:
    with pytest.raises(RecordsGone, match=rf"trajectories\[3\] at offset {at}.*keeps 10 to 20"):
        refuse_gone({PLACE: at}, {PLACE: (10, 20)})
