"""Ranks that have met form their process group."""

import threading

import pytest
import torch

from seamlessflow.trainer.backends.gang import GangRank, RankEnded
from seamlessflow.trainer.backends.meeting.meeting import begun
from tests.builders.trainer.gangs.meetings import line, meeting


@pytest.mark.soak  # it takes the minute of the limit
def test_a_rank_that_ends_before_the_group_is_formed_is_named() -> None:
    held = meeting()

    def come_and_end() -> None:
        way = line(held.place, 1)
        begun(way)
        way.close()

    ended = threading.Thread(target=come_and_end)
    ended.start()
    with pytest.raises(RankEnded, match="rank 1 of the gang ended"):
        GangRank(0, 2, held, torch.device("cpu"))
    ended.join()
    assert not torch.distributed.is_initialized()
