"""The processes of a worker's further ranks: the end of one is the end of all."""

import os
from pathlib import Path
from queue import Queue

import pytest

from seamlessflow.infra.device_model.settings import DeviceModelSection
from seamlessflow.trainer.backends.clock_backend import ClockBackend
from seamlessflow.trainer.policy import PolicySection
from seamlessflow.trainer.ranks.further import RankLost, WorkerDevices
from seamlessflow.trainer.settings import TrainerSettings
from tests.builders.trainer.gangs.meetings import meeting
from tests.builders.trainer.trainer_processes import kill_further_rank

LIMIT_S = 120.0


def test_the_end_of_a_further_rank_is_told_and_explains_the_error_that_it_makes(
    tmp_path: Path,
) -> None:
    settings = TrainerSettings(
        policy=PolicySection(model=tmp_path), device_model=DeviceModelSection(scale=1e-9)
    )
    errors: Queue[BaseException] = Queue()
    devices = WorkerDevices(4, ["cpu"], "", lambda: ClockBackend(settings, meeting()), errors.put)
    try:
        with pytest.raises(RankLost, match="rank 5") as raised, devices.following():
            kill_further_rank(os.getpid())
            raise RuntimeError("connection closed by peer")
        assert isinstance(raised.value.__cause__, RuntimeError)
        assert isinstance(errors.get(timeout=LIMIT_S), RankLost)
        with pytest.raises(RankLost):
            devices.acquire()
    finally:
        devices.close()
